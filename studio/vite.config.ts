// How the pages are built: hashed names, no inline script, and compressed copies beside every file.
import react from '@vitejs/plugin-react';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** Writes `FILE.br` and `FILE.gz` where they are shorter, so that the server never compresses. */
function precompressed(): Plugin {
  const visit = (dir: string) => {
    for (const name of readdirSync(dir)) {
      const path = join(dir, name);
      if (statSync(path).isDirectory()) {
        visit(path);
        continue;
      }
      const bytes = readFileSync(path);
      const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
      const gzip = gzipSync(bytes, { level: 9 });
      if (brotli.length < bytes.length) writeFileSync(`${path}.br`, brotli);
      if (gzip.length < bytes.length) writeFileSync(`${path}.gz`, gzip);
    }
  };
  let out = 'dist';
  return {
    name: 'precompressed',
    apply: 'build',
    configResolved: (config) => {
      out = config.build.outDir;
    },
    writeBundle: () => visit(out),
  };
}

export default defineConfig({
  plugins: [react(), precompressed()],
  build: {
    target: 'es2022',
    modulePreload: { polyfill: false },
    // Small files as data: addresses would need another source in the policy.
    assetsInlineLimit: 0,
  },
  server: {
    // `npm run dev` beside a server on its usual address; its cookie is for the host, whatever the port.
    proxy: { '/api': 'http://127.0.0.1:7171', '/sign-in': 'http://127.0.0.1:7171' },
  },
});
