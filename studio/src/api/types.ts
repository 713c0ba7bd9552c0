// Short names for the documents of the API; the schema is generated from docs/openapi.json (`npm run types`).
import type { components } from '../../generated/schema';

type Schemas = components['schemas'];
export type Workspace = Schemas['WorkspaceDocument'];
export type Session = Schemas['SessionDocument'];
export type Step = Schemas['StepDocument'];
export type StepDetail = Schemas['StepDetailDocument'];
export type StepEvent = Schemas['StepEventDocument'];
export type TimelineMarks = Schemas['TimelineMarksDocument'];
export type StepState = Schemas['StateDocument'];
export type FileEntry = Schemas['FileDocument'];
export type Message = Schemas['MessageDocument'];
export type Diff = Schemas['DiffDocument'];
export type ChangedFile = Schemas['ChangedFileDocument'];
export type PathChange = Schemas['ChangeDocument'];
export type Plan = Schemas['PlanDocument'];
export type ForkResult = Schemas['ConversationForkDocument'];
export type ApplyResult = Schemas['AppliedPlanDocument'];
export type Operation = Schemas['OperationDocument'];
export type Board = Schemas['BoardDocument'];
export type BoardSection = Schemas['BoardPartDocument'];
export type BoardItem = Schemas['BoardItemDocument'];
export type BoardGraph = Schemas['BoardGraphDocument'];
export type ConfidenceHistory = Schemas['ConfidenceDocument'];
export type Branch = Schemas['BranchDocument'];
export type Breakpoint = Schemas['BreakpointDocument'];
export type Stop = Schemas['StopDocument'];
export type SearchResults = Schemas['SearchResultsDocument'];
export type SearchHit = Schemas['SearchHitDocument'];
export type Snippet = Schemas['SnippetDocument'];
export type StepQueryResult = Schemas['FoundStepsDocument'];
export type Blame = Schemas['BlameDocument'];
export type BlamedLine = Schemas['BlamedLineDocument'];
export type LineOrigin = Schemas['LineOriginDocument'];
export type WhyDocument = Schemas['WhyDocument'];
export type WhyExplanation = Schemas['WhyExplanationDocument'];
export type WhyNode = Schemas['WhyNodeDocument'];
export type WhyEdge = Schemas['WhyEdgeDocument'];
export type Statistics = Schemas['StatisticsDocument'];
export type Usage = Schemas['UsageDocument'];
export type CreatedCheckpoint = Schemas['CreatedCheckpointDocument'];
export type ProblemDocument = Schemas['Problem'];
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}
export type DiskBudgetFacts = Schemas['DiskBudgetDocument'];
