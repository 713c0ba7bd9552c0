// A bar chart of a value by day, as one bar or as stacked parts.

export interface DayTotals {
  name: string;
  sessions: number;
  /** Of tools. */
  calls: number;
  errors: number;
  cost: number;
  tokens: number;
  input: number;
  cached: number;
  output: number;
}

interface DayChartProps {
  title: string;
  days: DayTotals[];
  value: (day: DayTotals) => number;
  format: (value: number) => string;
  isError?: boolean;
  /** Parts that add up to the value. */
  parts?: { name: string; className: string; value: (day: DayTotals) => number }[];
}

export function DayChart({ title, days, value, format, isError, parts }: DayChartProps) {
  const values = days.map(value);
  const max = Math.max(...values, 0);
  const sum = values.reduce((total, amount) => total + amount, 0);
  const barWidth = 100 / days.length;
  const gap = Math.min(0.6, barWidth * 0.12);
  const barHeight = (amount: number) => (max ? (amount / max) * 36 : 0);
  return (
    <figure className={isError ? 'chart bad' : 'chart'}>
      <figcaption>
        {title} <span className="dim">{format(sum)}</span>
      </figcaption>
      <svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={`${title}: ${days.map((day) => `${day.name} ${format(value(day))}`).join(', ')}`}>
        {days.map((day, index) => {
          const totalHeight = barHeight(value(day));
          const position = { x: index * barWidth + gap, width: barWidth - gap * 2 };
          if (!parts || totalHeight === 0) {
            return (
              <rect key={day.name} className={totalHeight === 0 ? 'none' : ''} {...position} y={39 - Math.max(totalHeight, 0.6)} height={Math.max(totalHeight, 0.6)} rx={0.8}>
                <title>{`${day.name}: ${format(value(day))}`}</title>
              </rect>
            );
          }
          let y = 39;
          return (
            <g key={day.name}>
              <title>{`${day.name}: ${parts.map((part) => `${part.name} ${format(part.value(day))}`).join(', ')}`}</title>
              {parts.map((part) => {
                const height = barHeight(part.value(day));
                y -= height;
                return <rect key={part.name} className={part.className} {...position} y={y} height={height} />;
              })}
            </g>
          );
        })}
      </svg>
      <div className="axis dim" aria-hidden="true">
        <span>{days[0]?.name}</span>
        <span>{days[days.length - 1]?.name}</span>
      </div>
      {parts && (
        <div className="legend" aria-hidden="true">
          {parts.map((part) => (
            <span key={part.name}>
              <i className={part.className} /> {part.name}
            </span>
          ))}
        </div>
      )}
    </figure>
  );
}
