// Icons as SVG paths, so that they look the same with every font.
const PATHS = {
  sessions: 'M3 4.5h10M3 8h10M3 11.5h10',
  checkpoints: 'M8 2.5 13.5 8 8 13.5 2.5 8Z',
  branches: 'M5 5.5v5M5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11 6.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11 6.5c0 3-6 1.500-6 4',
  live: 'M8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM4 12a5.600 5.600 0 0 1 0-8M12 4a5.600 5.600 0 0 1 0 8',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9ZM10.300 10.300 13.500 13.500',
  dashboard: 'M3 13.500v-4M6.500 13.500V5M10 13.500V8M13.500 13.500v-11',
  first: 'M4 3.500v9M12 3.500 6.500 8l5.500 4.500Z',
  back: 'M11 3.500 5.500 8l5.500 4.500Z',
  play: 'M5 3.500 12 8l-7 4.500Z',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  forward: 'M5 3.500 10.500 8 5 12.500Z',
  last: 'M12 3.500v9M4 3.500 9.500 8 4 12.500Z',
  sun: 'M8 10.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M12.600 3.400l-1 1M4.400 11.600l-1 1',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500Z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round">
      <path d={PATHS[name]} />
    </svg>
  );
}
