// Syntax highlighting as text tokens with a class, never as markup. The set of languages is fixed, so that no other is shipped.
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import css from 'highlight.js/lib/languages/css';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { createLowlight } from 'lowlight';

const lowlight = createLowlight({ bash, c, cpp, css, go, ini, java, javascript, json, markdown, python, ruby, rust, sql, typescript, xml, yaml });

const LANGUAGE_BY_EXTENSION: Record<string, string> = {
  sh: 'bash', bash: 'bash', zsh: 'bash', c: 'c', h: 'c', cc: 'cpp', cpp: 'cpp', hpp: 'cpp', css: 'css', go: 'go', toml: 'ini', ini: 'ini', cfg: 'ini',
  java: 'java', js: 'javascript', jsx: 'javascript', mjs: 'javascript', json: 'json', md: 'markdown', py: 'python', rb: 'ruby', rs: 'rust', sql: 'sql',
  ts: 'typescript', tsx: 'typescript', html: 'xml', xml: 'xml', svg: 'xml', yml: 'yaml', yaml: 'yaml',
};

export interface HighlightToken {
  text: string;
  className: string;
}

interface SyntaxNode {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: SyntaxNode[];
}

const MAX_TEXT_LENGTH = 200_000;
const MAX_LINE_LENGTH = 2000;

export const languageForPath = (path: string): string | undefined => LANGUAGE_BY_EXTENSION[path.split('.').pop()?.toLowerCase() ?? ''];

/** The tokens of each line; null if the language is unknown, or the text is too long to highlight. */
export function highlight(text: string, language: string | undefined): HighlightToken[][] | null {
  if (!language || text.length > MAX_TEXT_LENGTH) return null;
  if (text.split('\n').some((line) => line.length > MAX_LINE_LENGTH)) return null;
  const lines: HighlightToken[][] = [[]];
  const visit = (node: SyntaxNode, className: string) => {
    if (node.type === 'text') {
      (node.value ?? '').split('\n').forEach((part, index) => {
        if (index > 0) lines.push([]);
        if (part) lines[lines.length - 1]?.push({ text: part, className });
      });
      return;
    }
    const ownClass = node.properties?.className?.[0] ?? className;
    for (const child of node.children ?? []) visit(child, ownClass);
  };
  visit(lowlight.highlight(language, text) as unknown as SyntaxNode, '');
  return lines;
}
