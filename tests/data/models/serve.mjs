// A small model behind /v1/chat/completions, for the slow test of garbage replies.
// node serve.mjs MODEL.gguf PORT   (needs node-llama-cpp in node_modules beside it)
import http from "node:http";
import {getLlama, LlamaChatSession} from "node-llama-cpp";

const [file, port] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, maxThreads: 1});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({contextSize: 8192});
const sequence = context.getSequence();
const longest = Number(process.env.LONGEST ?? 512);
let turn = Promise.resolve();

// It rambles: free text and lists are kept short, or its object never ends.
function bounded(schema) {
    if (schema.type === "string" && !schema.enum) return {...schema, maxLength: 30};
    if (schema.type === "array") return {...schema, minItems: 1, maxItems: 1, items: bounded(schema.items)};
    if (schema.type !== "object") return schema;
    const properties = Object.entries(schema.properties).map(([name, value]) => [name, bounded(value)]);
    return {...schema, properties: Object.fromEntries(properties)};
}

async function answer(asked) {
    const system = asked.messages.find((m) => m.role === "system")?.content ?? "";
    const user = asked.messages.filter((m) => m.role === "user").map((m) => m.content).join("\n\n");
    const session = new LlamaChatSession({contextSequence: sequence, systemPrompt: system});
    const schema = asked.response_format?.json_schema?.schema;
    const grammar = schema ? await llama.createGrammarForJsonSchema(bounded(schema)) : undefined;
    const text = await session.prompt(user, {
        grammar, maxTokens: Math.min(asked.max_tokens ?? longest, longest), temperature: asked.temperature ?? 0.8, seed: Date.now() % 2 ** 31,
    });
    session.dispose({disposeSequence: false});
    return {
        choices: [{index: 0, finish_reason: "stop", message: {role: "assistant", content: text}}],
        usage: {prompt_tokens: model.tokenize(system + user).length, completion_tokens: model.tokenize(text).length},
    };
}

http.createServer((request, response) => {
    let body = "";
    request.on("data", (part) => { body += part; });
    request.on("end", () => {
        turn = turn.then(async () => {
            let status = 200, value;
            try {
                value = await answer(JSON.parse(body));
            } catch (error) {
                status = 500;
                value = {error: {message: String(error)}};
            }
            response.writeHead(status, {"content-type": "application/json"});
            response.end(JSON.stringify(value));
        });
    });
}).listen(Number(port), "127.0.0.1", () => console.log("ready"));
