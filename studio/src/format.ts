// Numbers, sizes and times as text.

export function formatBytes(byteCount: number): string {
  if (byteCount < 1000) return `${byteCount} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = byteCount;
  let unit = -1;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** A duration in microseconds. */
export function formatDuration(microseconds: number): string {
  if (microseconds < 1000) return `${Math.round(microseconds)} µs`;
  if (microseconds < 1_000_000) return `${Math.round(microseconds / 1000)} ms`;
  const seconds = microseconds / 1_000_000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const total = Math.round(seconds);
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  const hours = Math.floor(total / 3600);
  if (hours < 48) return `${hours} h ${Math.floor((total % 3600) / 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const microsecondsBetween = (from: string, to: string): number => (Date.parse(to) - Date.parse(from)) * 1000;

export function formatAge(timestamp: string, now = Date.now()): string {
  const seconds = Math.max(0, (now - Date.parse(timestamp)) / 1000);
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 86400 * 14) return `${Math.floor(seconds / 86400)} d ago`;
  return formatDay(timestamp);
}

const dayFormat = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric' });
const utcDayFormat = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric', timeZone: 'UTC' });
const dateTimeFormat = new Intl.DateTimeFormat(undefined, {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const numberFormat = new Intl.NumberFormat();
const compactFormat = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });

export const formatDay = (timestamp: string): string => dayFormat.format(new Date(timestamp));
/** A day of universal time: `2026-01-23`. */
export const formatUtcDay = (day: string): string => utcDayFormat.format(new Date(`${day}T00:00:00Z`));
export const formatDateTime = (timestamp: string): string => dateTimeFormat.format(new Date(timestamp));
export const formatTime = (timestamp: string): string => timeFormat.format(new Date(timestamp));
export const formatCount = (value: number): string => numberFormat.format(value);
/** A large number in a few characters. */
export const formatCompact = (value: number): string => compactFormat.format(value);
export const pluralize = (value: number, one: string, many = `${one}s`): string => `${formatCount(value)} ${value === 1 ? one : many}`;
export const formatCost = (usd: number): string => (usd === 0 ? '–' : usd < 0.01 ? '< $0.01' : `$${usd.toFixed(2)}`);
/** The last part of a path. */
export function baseName(path: string): string {
  const parts = path.split('/').filter(Boolean);
  return parts[parts.length - 1] ?? path;
}
export const shortId = (id: string): string => id.slice(0, 8);
/** Strings as they are, everything else as indented JSON. */
export const formatValue = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
