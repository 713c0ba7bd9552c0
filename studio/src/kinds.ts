// What each kind of step looks like and is called, in one place for the canvas and the page.

export type Family = 'prompt' | 'model' | 'tool' | 'error' | 'checkpoint' | 'travel' | 'control' | 'task' | 'thought' | 'other';

const FAMILIES: Record<string, Family> = {
  'user-input': 'prompt',
  'model-start': 'model',
  'model-end': 'model',
  'tool-start': 'tool',
  'tool-end': 'tool',
  error: 'error',
  'task-failed': 'error',
  checkpoint: 'checkpoint',
  rewind: 'travel',
  'branch-created': 'travel',
  'branch-switched': 'travel',
  'breakpoint-hit': 'control',
  decision: 'control',
  gap: 'error',
  'task-created': 'task',
  'task-assigned': 'task',
  'task-started': 'task',
  'task-completed': 'task',
  reasoning: 'thought',
};

const GLYPHS: Record<Family, string> = {
  prompt: '›',
  model: '✦',
  tool: '⚙',
  error: '!',
  checkpoint: '◆',
  travel: '↺',
  control: '■',
  task: '☑',
  thought: '◇',
  other: '·',
};

/** In the order of the legend. */
export const ORDER: Family[] = ['prompt', 'model', 'tool', 'task', 'thought', 'control', 'travel', 'checkpoint', 'error', 'other'];

export const NAMES: Record<Family, string> = {
  prompt: 'prompt',
  model: 'model call',
  tool: 'tool call',
  error: 'error',
  checkpoint: 'checkpoint',
  travel: 'rewind, branch',
  control: 'breakpoint',
  task: 'task',
  thought: 'thought',
  other: 'other',
};

export const family = (kind: string): Family => FAMILIES[kind] ?? 'other';
export const glyph = (kind: string): string => GLYPHS[family(kind)];
