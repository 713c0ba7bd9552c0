// The fixture of each test: its own store, a project with real files, and the real program that serves it.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { type Page, test as base } from '@playwright/test';

export const PROGRAM = process.env.STEPBACK_PROGRAM ?? join(import.meta.dirname, '../../target/debug/stepback');
export const OUT = process.env.STEPBACK_STUDIO_OUT ?? join(import.meta.dirname, '../../target/studio');

export interface Call {
  tool: string;
  input: Record<string, unknown>;
}
export interface Turn {
  text: string;
  calls?: Call[];
  thinks_ms?: number;
}

export class TestProject {
  readonly dir = mkdtempSync(join(tmpdir(), 'stepback-studio-'));
  root = join(this.dir, 'project');
  store = join(this.dir, 'store');
  private readonly children: ChildProcess[] = [];
  private server: ChildProcess | null = null;
  url = '';

  constructor() {
    mkdirSync(this.root, { recursive: true });
    mkdirSync(join(this.dir, 'home'));
  }

  get environment(): NodeJS.ProcessEnv {
    return { PATH: process.env.PATH ?? '', HOME: join(this.dir, 'home'), STEPBACK_HOME: this.store, STEPBACK_WATCHER: 'ask', TMPDIR: this.dir, LANG: 'C.UTF-8' };
  }

  write(path: string, text: string | Buffer) {
    mkdirSync(dirname(join(this.root, path)), { recursive: true });
    writeFileSync(join(this.root, path), text);
  }

  read(path: string): string | null {
    const absolute = join(this.root, path);
    return existsSync(absolute) ? readFileSync(absolute, 'utf8') : null;
  }

  run(...args: string[]): string {
    return execFileSync(PROGRAM, args, { cwd: this.root, env: this.environment, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  private script(turns: Turn[]): string {
    const path = join(this.dir, `script-${Math.random().toString(36).slice(2)}.json`);
    writeFileSync(path, JSON.stringify({ model: 'scripted-1', turns: turns.map((turn) => ({ calls: [], thinks_ms: 0, ...turn })) }));
    return path;
  }

  /** Runs the built-in agent with scripted model responses. */
  runAgent(prompt: string, turns: Turn[]) {
    this.run('agent', '--provider', 'scripted', this.script(turns), prompt);
  }

  /** The same in the background; resolves to its exit code. */
  startAgent(prompt: string, turns: Turn[]): Promise<number | null> {
    const child = spawn(PROGRAM, ['agent', '--provider', 'scripted', this.script(turns), prompt], { cwd: this.root, env: this.environment, stdio: 'ignore' });
    this.children.push(child);
    return new Promise((resolve) => child.on('exit', resolve));
  }

  /** Runs the demo, and uses its project and store from then on. */
  demo() {
    this.run('demo', '--fast');
    const demoDir = readdirSync(this.dir).find((name) => name.startsWith('stepback-demo-'));
    if (!demoDir) throw new Error('the demo created no directory');
    this.root = join(this.dir, demoDir, 'auth');
    this.store = join(this.dir, demoDir, 'store');
  }

  /** Starts the Studio; the returned address signs a browser in once. */
  async serve(listen = '127.0.0.1:0'): Promise<string> {
    const child = spawn(PROGRAM, ['studio', '--no-open', '--json', '--listen', listen], { cwd: this.root, env: this.environment, stdio: ['ignore', 'pipe', 'inherit'] });
    this.children.push(child);
    this.server = child;
    const output = await new Promise<string>((resolve, reject) => {
      let text = '';
      child.stdout?.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (text.includes('}')) resolve(text);
      });
      child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${text}`)));
    });
    const document = JSON.parse(output) as { url: string; sign_in_url: string };
    this.url = document.url;
    return document.sign_in_url;
  }

  /** Kills the server, as a crash would. */
  async killServer() {
    const child = this.server;
    if (!child) return;
    const exited = new Promise((resolve) => child.on('exit', resolve));
    child.kill('SIGKILL');
    await exited;
  }

  async api<T = Record<string, unknown>>(path: string, body?: unknown, method = body === undefined ? 'GET' : 'POST'): Promise<T> {
    const token = readFileSync(join(this.store, 'server.token'), 'utf8').trim();
    const response = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  async dispose() {
    for (const child of this.children) if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Collects page errors and console errors, except those of a server that is away, and of Playwright's own trace, which reads images. */
export function collectErrors(page: Page): string[] {
  const errors: string[] = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE|^Connecting to 'blob:/.test(message.text())) errors.push(message.text());
  });
  return errors;
}

const CONTENT_TYPES: Record<string, string> = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

/** Serves the pages of `STEPBACK_STUDIO_DIST`, as `npm run build` writes them, in place of those in the program. */
async function servePagesFrom(dist: string, page: Page) {
  await page.context().route(
    (url) => !/^\/(api|sign-in)/.test(url.pathname),
    async (route) => {
      const response = await route.fetch();
      const { pathname } = new URL(route.request().url());
      const path = join(dist, extname(pathname) in CONTENT_TYPES ? pathname : 'index.html');
      if (!existsSync(path)) return route.fulfill({ response });
      const { 'content-encoding': _, 'content-length': __, ...headers } = response.headers();
      return route.fulfill({ status: 200, headers: { ...headers, 'content-type': CONTENT_TYPES[extname(path)] ?? '' }, body: readFileSync(path) });
    },
  );
}

export const test = base.extend<{ project: TestProject }>({
  page: async ({ page }, provide) => {
    if (process.env.STEPBACK_STUDIO_DIST) await servePagesFrom(process.env.STEPBACK_STUDIO_DIST, page);
    await provide(page);
  },
  project: async ({}, provide) => {
    const project = new TestProject();
    await provide(project);
    await project.dispose();
  },
});
export { expect } from '@playwright/test';
