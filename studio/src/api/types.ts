// Short names for the documents of the API; the schema is generated from docs/openapi.json (`npm run types`).
import type { components } from '../../generated/schema';

type Schemas = components['schemas'];
export type Workspace = Schemas['WorkspaceDocument'];
export type Session = Schemas['SessionDocument'];
export type Step = Schemas['StepDocument'];
export type StepDetail = Schemas['StepDetailDocument'];
export type StepEvent = Schemas['StepEventDocument'];
export type Marks = Schemas['MarksDocument'];
export type State = Schemas['StateDocument'];
export type FileEntry = Schemas['FileDocument'];
export type Message = Schemas['MessageDocument'];
export type Diff = Schemas['DiffDocument'];
export type ChangedFile = Schemas['ChangedFileDocument'];
export type Change = Schemas['ChangeDocument'];
export type Plan = Schemas['PlanDocument'];
export type Forked = Schemas['ForkedDocument'];
export type Applied = Schemas['AppliedDocument'];
export type Operation = Schemas['OperationDocument'];
export type Mind = Schemas['MindDocument'];
export type MindPart = Schemas['MindPartDocument'];
export type MindItem = Schemas['MindItemDocument'];
export type MindGraph = Schemas['MindGraphDocument'];
export type Confidence = Schemas['ConfidenceDocument'];
export type Branch = Schemas['BranchDocument'];
export type Breakpoint = Schemas['BreakpointDocument'];
export type NewBreakpoint = Schemas['NewBreakpoint'];
export type Stop = Schemas['StopDocument'];
export type Hits = Schemas['HitsDocument'];
export type Hit = Schemas['HitDocument'];
export type Snippet = Schemas['SnippetDocument'];
export type FoundSteps = Schemas['FoundStepsDocument'];
export type Statistics = Schemas['StatisticsDocument'];
export type Usage = Schemas['UsageDocument'];
export type Created = Schemas['CreatedDocument'];
export type NewRerun = Schemas['NewRerun'];
export type ProblemDocument = Schemas['Problem'];
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}
