// What the keys do, as a page of its own: the same words as in the terminal.
import { Dialog } from './ui';

const KEY_GROUPS: [string, [string, string][]][] = [
  [
    'Everywhere',
    [
      ['/', 'search'],
      ['?', 'these keys'],
      ['Tab', 'to the next part'],
    ],
  ],
  [
    'Lists',
    [
      ['j k', 'down, up'],
      ['Enter', 'open'],
    ],
  ],
  [
    'A session',
    [
      ['h l ← →', 'a step back, a step forward'],
      ['j k ↓ ↑', 'the same, in the list'],
      ['Home End', 'first step, last step'],
      ['e E', 'next error, previous error'],
      ['n N', 'next step of the same kind, previous one'],
      ['] [', 'next checkpoint, previous one'],
      ['Space', 'play, pause'],
      ['+ − 0', 'zoom in, out, all'],
      ['g', 'jump to a step'],
      ['c', 'create a checkpoint'],
      ['w', 'rewind to this step (the plan is shown first)'],
      ['b', 'branch from this step'],
      ['p', 'pause the agent at its next call'],
      ['Tab', 'views'],
    ],
  ],
  [
    'A diff',
    [
      ['n N', 'next change, previous one'],
      ['] [', 'next file, previous one'],
      ['s', 'side by side, or unified'],
    ],
  ],
];

export function KeyHelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose} wide>
      <div className="key-table">
        {KEY_GROUPS.map(([name, keys]) => (
          <section key={name}>
            <h3>{name}</h3>
            <dl>
              {keys.map(([key, description]) => (
                <div key={key}>
                  <dt>
                    {key.split(' ').map((label) => (
                      <kbd key={label}>{label}</kbd>
                    ))}
                  </dt>
                  <dd>{description}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
