// Tests of the Studio in a real browser against the real program. `cargo xtask studio test` builds it and sets the paths.
import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

const system = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) => existsSync(path));
const executablePath = process.env.STEPBACK_CHROMIUM ?? system;
const out = process.env.STEPBACK_STUDIO_OUT ?? '../target/studio';

export default defineConfig({
  testDir: 'tests',
  outputDir: `${out}/results`,
  timeout: 90_000,
  expect: { timeout: 15_000 },
  // On a loaded machine, a browser may be too slow once.
  retries: 1,
  workers: 2,
  fullyParallel: true,
  reporter: [['list']],
  forbidOnly: true,
  use: {
    browserName: 'chromium',
    viewport: { width: 1440, height: 900 },
    launchOptions: {
      ...(executablePath ? { executablePath } : {}),
      // In a container as root, the browser cannot create its sandbox; it opens only our pages.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    },
    trace: 'retain-on-failure',
  },
});
