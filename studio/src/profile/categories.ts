// The categories of time and the parts of a context, with names, colours and order. Nothing here renders.

/** In the order of the bar and the legend: work first, then waiting, then nothing. */
export const CATEGORY_ORDER = ['model', 'tool', 'hook', 'breakpoint', 'user', 'idle'];

export const CATEGORY_NAMES: Record<string, string> = {
  model: 'model',
  tool: 'tools',
  hook: 'hooks and the agent’s own work',
  breakpoint: 'waiting at a breakpoint',
  user: 'waiting for the user',
  idle: 'idle',
};

/** The custom property with the colour of each category. */
export const CATEGORY_COLOURS: Record<string, string> = {
  model: '--kind-model',
  tool: '--kind-tool',
  hook: '--kind-task',
  breakpoint: '--kind-control',
  user: '--kind-prompt',
  idle: '--line-strong',
};

/** Nothing was done meanwhile: drawn as an outline, so that it is not taken for work. */
export const isWaiting = (category: string): boolean => category === 'breakpoint' || category === 'user' || category === 'idle';

export const PART_ORDER = ['system', 'tools', 'user', 'assistant', 'result', 'other'];

export const PART_NAMES: Record<string, string> = {
  system: 'system prompt',
  tools: 'descriptions of tools',
  user: 'prompts',
  assistant: 'the model’s own answers',
  result: 'tool results',
  other: 'images and others',
};

export const PART_COLOURS: Record<string, string> = {
  system: '--kind-task',
  tools: '--kind-checkpoint',
  user: '--kind-prompt',
  assistant: '--kind-model',
  result: '--kind-tool',
  other: '--kind-other',
};
