// stepback plugin for opencode: tells stepback what the agent does, so that it can be stepped through and undone.
// Written by `stepback init`. To remove it: `stepback init --agent opencode --uninstall`, or delete this file.
import { spawn } from "node:child_process";

const BINARY = "@BINARY@";
const ARGS = ["@ARGS@"];
const STRICT = "@STRICT@";

// Bus events worth telling; everything else (every streamed word, for one) stays here.
const EVENTS = ["session.created", "session.idle", "session.error", "session.compacted", "message.updated"];

// Runs stepback once with `payload` on its standard input. Resolves to its answer, an object; never rejects unless strict.
function ask(payload) {
  return new Promise((resolve, reject) => {
    const fail = (why) => (STRICT ? reject(new Error(`stepback: ${why} (strict mode)`)) : resolve({}));
    let child;
    try {
      child = spawn(BINARY, ARGS, { cwd: payload.cwd, stdio: ["pipe", "pipe", "ignore"] });
    } catch (error) {
      return fail(error.message);
    }
    let answer = "";
    child.on("error", (error) => fail(error.message));
    child.stdin.on("error", () => {}); // It may leave before reading all; its exit status decides.
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (text) => (answer += text));
    child.on("close", (code) => {
      if (code !== 0) return fail(`the hook ended with status ${code}`);
      try {
        resolve((answer.trim() && JSON.parse(answer)) || {});
      } catch {
        fail("the hook answered something other than JSON");
      }
    });
    child.stdin.end(JSON.stringify(payload));
  });
}

// opencode loads each copy it finds (user, project, one run). The first one in a directory speaks, the others keep quiet.
const speakers = (globalThis[Symbol.for("stepback.speakers")] ??= new Map());

export const Stepback = async ({ directory, worktree }) => {
  if (!speakers.has(directory)) speakers.set(directory, import.meta.url);
  if (speakers.get(directory) !== import.meta.url) return {};

  // What is only told is sent one at a time, in order, and nobody waits for it. What is asked waits for what was told before.
  let told = Promise.resolve();
  const tell = (payload) => {
    told = told.then(() => ask(payload)).catch(() => {});
  };
  const payload = (name, sessionID, rest) => ({
    hook_event_name: name,
    session_id: sessionID,
    cwd: directory,
    worktree,
    ...rest,
  });
  const seen = new Set();

  return {
    "tool.execute.before": async (input, output) => {
      await told;
      const answer = await ask(
        payload("tool.execute.before", input.sessionID, {
          tool_name: input.tool,
          tool_input: output.args,
          tool_use_id: input.callID,
        }),
      );
      if (answer.decision === "deny") throw new Error(answer.reason || "denied by stepback");
      if (answer.tool_input) {
        // The tool holds on to this very object: change it, do not put another in its place.
        for (const key of Object.keys(output.args)) delete output.args[key];
        Object.assign(output.args, answer.tool_input);
      }
    },
    "tool.execute.after": async (input, output) => {
      await told;
      const answer = await ask(
        payload("tool.execute.after", input.sessionID, {
          tool_name: input.tool,
          tool_input: input.args,
          tool_use_id: input.callID,
          tool_response: { title: output?.title, output: output?.output, metadata: output?.metadata },
        }),
      ).catch(() => ({})); // The tool has run: to fail now would only lose its result.
      if (!output) return;
      if (typeof answer.output === "string") output.output = answer.output;
      if (typeof answer.context === "string") output.output = `${output.output ?? ""}\n\n${answer.context}`;
    },
    "chat.message": async (input, output) => {
      tell(payload("chat.message", input.sessionID, { message: output.message, parts: output.parts }));
    },
    event: async ({ event }) => {
      if (!EVENTS.includes(event.type)) return;
      const properties = event.properties ?? {};
      const info = properties.info;
      if (event.type === "message.updated") {
        // Told once per reply of the model, when it is complete and its usage is known.
        if (info?.role !== "assistant" || !info.time?.completed || seen.has(info.id)) return;
        seen.add(info.id);
      }
      tell(payload(event.type, properties.sessionID ?? info?.sessionID ?? info?.id, { properties }));
      if (event.type === "session.idle") await told; // `opencode run` leaves right after this one.
    },
  };
};
