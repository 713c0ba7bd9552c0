// The build: hashed names, no inline scripts, and a compressed copy of every file.
import react from '@vitejs/plugin-react';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

/** Writes `FILE.br` and `FILE.gz` where they are smaller, so that the server never compresses. */
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
    // data: URLs would need another source in the Content-Security-Policy.
    assetsInlineLimit: 0,
  },
  server: {
    // `npm run dev` beside a server at its default address: open the server's sign-in link at this port.
    proxy: { '/api': 'http://127.0.0.1:7171', '/sign-in': 'http://127.0.0.1:7171' },
  },
});
