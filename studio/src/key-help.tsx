// The dialog that lists all keyboard shortcuts, in the same words as the terminal interface.
import { Dialog } from './ui';

const KEY_GROUPS: [string, [string, string][]][] = [
  [
    'Everywhere',
    [
      ['/', 'search'],
      ['?', 'keyboard shortcuts'],
      ['Tab', 'next control'],
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
      ['h l ← →', 'previous step, next step'],
      ['j k ↓ ↑', 'the same, in the list'],
      ['Home End', 'first step, last step'],
      ['e E', 'next error, previous error'],
      ['n N', 'next, previous step of the same kind'],
      ['a A', 'next, previous anomaly'],
      ['] [', 'next, previous checkpoint'],
      ['Space', 'play, pause'],
      ['+ − 0', 'zoom in, out, all'],
      ['g', 'jump to a step'],
      ['c', 'create a checkpoint'],
      ['w', 'rewind to this step (the plan is shown first)'],
      ['b', 'branch from this step'],
      ['p', 'pause the agent at its next call'],
      ['s', 'share the session'],
      ['Tab', 'next view'],
    ],
  ],
  [
    'A diff',
    [
      ['n N', 'next, previous change'],
      ['] [', 'next, previous file'],
      ['s', 'switch between side by side and unified'],
    ],
  ],
];

export function KeyHelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} wide>
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
