// Families of step kinds with their glyphs and names, shared by the canvas and the pages.

export type StepFamily = 'prompt' | 'model' | 'tool' | 'error' | 'checkpoint' | 'travel' | 'control' | 'task' | 'thought' | 'other';

const FAMILY_OF_KIND: Record<string, StepFamily> = {
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
  message: 'task',
  reasoning: 'thought',
};

const FAMILY_GLYPHS: Record<StepFamily, string> = {
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
export const FAMILY_ORDER: StepFamily[] = ['prompt', 'model', 'tool', 'task', 'thought', 'control', 'travel', 'checkpoint', 'error', 'other'];

export const FAMILY_NAMES: Record<StepFamily, string> = {
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

export const familyOf = (kind: string): StepFamily => FAMILY_OF_KIND[kind] ?? 'other';
export const glyphOf = (kind: string): string => FAMILY_GLYPHS[familyOf(kind)];
