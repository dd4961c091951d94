// SPDX-License-Identifier: MIT
// Loads a model with node-llama-cpp and generates from it, for `memtally profile`.
//
// usage: node node-llama-cpp.mjs SETTINGS
//
// SETTINGS is JSON: modules (the folder that holds node_modules), model, prompt (null: one is made
// up), prompt_tokens, max_tokens, batch_size, context (0: as much as is needed, at least 2048),
// kv_type and threads (null: the engine's), gpu_layers ("12", "auto", "max"; null: none), repeats. Standard output is one JSON event a line:
//
//   {"event":"engine","name","version","binding"}
//   {"event":"model","name","architecture","dtype","parameters","size_bytes","layers",
//    "trained_context_tokens"}
//   {"event":"settings","context_tokens","batch","threads","prompt_tokens","kv_type_k","kv_type_v"}
//   {"event":"phase","name","run","time_ns"}   load, context, prefill, decode or idle begins
//   {"event":"run","run","latency_ms","prefill_ms","decode_ms","steps"}   run 0 warms up
//   {"event":"error","message","usage"}   usage: of what the user asked for
//   {"event":"done","time_ns"}
//
// Times are of CLOCK_MONOTONIC. llama.cpp's own log goes to standard error.
import fs from "node:fs";
import path from "node:path";
import process from "node:process";
import {pathToFileURL} from "node:url";

const FILLER = "The memory of a language model holds its weights, its cache and its scratch space. ";

function now()
{
    return process.hrtime.bigint();
}

// A short write is followed up, and a reader that is slow is waited for.
function emit(event)
{
    let bytes = Buffer.from(JSON.stringify(event) + "\n");
    while (bytes.length > 0) {
        try {
            bytes = bytes.subarray(fs.writeSync(1, bytes));
        } catch (error) {
            if (error.code !== "EAGAIN")
                throw error;
        }
    }
}

function phase(name, run, time = now())
{
    emit({event: "phase", name, run, time_ns: Number(time)});
    return time;
}

function milliseconds(from, to)
{
    return Number(to - from) / 1e6;
}

async function importEngine(modules)
{
    const folder = path.join(modules, "node_modules", "node-llama-cpp");
    const about = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    const entry = path.join(folder, about.main ?? "dist/index.js");
    return {engine: await import(pathToFileURL(entry).href), binding: `${about.name} ${about.version}`};
}

// llama.cpp ends most of its messages with a line feed, the binding does not.
function log(_level, message)
{
    process.stderr.write(message.endsWith("\n") ? message : message + "\n");
}

// The package tries its library in a process of its own, and takes one that finds devices for the
// wrong one: it is the library for processors alone, and the devices are pretended.
function hideDevicesFromTrial()
{
    delete process.env.LD_PRELOAD;
    delete process.env.GGML_BACKEND_PATH;
}

function layersOnDevices(settings)
{
    const layers = settings.gpu_layers ?? 0;
    return Number.isNaN(Number(layers)) ? layers : Number(layers);
}

async function startLlama(engine, binding)
{
    const llama = await engine.getLlama({
        gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: "info",
        logger: log
    });
    emit({event: "engine", name: "llama.cpp", version: llama.llamaCppRelease?.release ?? null, binding});
    return llama;
}

function describeModel(engine, model)
{
    const {metadata, fullTensorInfo} = model.fileInfo;
    const type = engine.GgufFileType?.[metadata.general?.file_type];
    const elements = (tensor) => tensor.dimensions.reduce((all, n) => all * Number(n), 1);
    emit({
        event: "model",
        name: metadata.general?.name ?? null,
        architecture: metadata.general?.architecture ?? null,
        dtype: type ? type.replace(/^(MOSTLY|ALL)_/, "") : null,
        parameters: fullTensorInfo?.reduce((all, tensor) => all + elements(tensor), 0) ?? null,
        size_bytes: model.size,
        layers: model.fileInfo.architectureMetadata?.block_count ?? null,
        trained_context_tokens: model.trainContextSize ?? null
    });
}

// The tokens of the prompt; where only their number is given, of a text long enough for it.
function promptTokens(model, settings)
{
    let tokens = model.tokenize(settings.prompt ?? FILLER);
    if (model.shouldPrependBosToken && model.tokens.bos != null)
        tokens = [model.tokens.bos, ...tokens];
    if (tokens.length === 0)
        throw new Error("the model's tokenizer makes nothing of the prompt");
    if (settings.prompt != null)
        return tokens;
    return Array.from({length: settings.prompt_tokens}, (_, i) => tokens[i % tokens.length]);
}

// Wrong settings are the user's error, and end the program with another status than a failure does.
class UsageError extends Error {}

async function makeContext(engine, model, settings, nPrompt)
{
    const needed = nPrompt + settings.max_tokens;
    if (settings.context && settings.context < needed)
        throw new UsageError(`prompt and output take ${needed} tokens and the context is for ` +
            `${settings.context}: raise --context, or lower --max-tokens or the prompt`);
    const type = settings.kv_type?.toUpperCase();
    const context = await model.createContext({
        contextSize: settings.context || Math.max(2048, Math.ceil(needed / 256) * 256),
        sequences: settings.batch_size,
        threads: settings.threads ?? undefined,
        ...(type ? {experimentalKvCacheKeyType: type, experimentalKvCacheValueType: type} : {}),
        failedCreationRemedy: false
    });
    emit({
        event: "settings", context_tokens: context.contextSize, batch: context.batchSize,
        threads: context.idealThreads, prompt_tokens: nPrompt,
        kv_type_k: engine.GgmlType?.[context.kvCacheKeyType]?.toLowerCase() ?? null,
        kv_type_v: engine.GgmlType?.[context.kvCacheValueType]?.toLowerCase() ?? null
    });
    return context;
}

// One token of every sequence.
async function step(streams)
{
    for (const {done} of await Promise.all(streams.map((stream) => stream.next())))
        if (done)
            throw new Error("the engine stopped generating before it was told to");
}

// Prefill is up to the first token of every sequence, decode the rest. The sequences go in step.
async function generate(sequences, tokens, steps, run)
{
    const streams = sequences.map((sequence) =>
        sequence.evaluate(tokens, {temperature: 0, yieldEogToken: true}));
    const start = phase("prefill", run);
    await step(streams);
    const first = phase("decode", run);
    for (let i = 1; i < steps; i++)
        await step(streams);
    const end = phase("idle", run);
    await Promise.all(streams.map((stream) => stream.return()));
    await Promise.all(sequences.map((sequence) => sequence.clearHistory()));
    emit({
        event: "run", run, latency_ms: milliseconds(start, end), prefill_ms: milliseconds(start, first),
        decode_ms: milliseconds(first, end), steps
    });
}

async function profile(settings)
{
    const {engine, binding} = await importEngine(settings.modules);
    phase("start", 0);
    if (settings.gpu_layers != null)
        hideDevicesFromTrial();
    const llama = await startLlama(engine, binding);
    phase("load", 0);
    const model = await llama.loadModel({modelPath: settings.model, gpuLayers: layersOnDevices(settings)});
    describeModel(engine, model);
    phase("context", 0);
    const tokens = promptTokens(model, settings);
    const context = await makeContext(engine, model, settings, tokens.length);
    const sequences = Array.from({length: settings.batch_size}, () => context.getSequence());
    for (let run = 0; run <= settings.repeats; run++)
        await generate(sequences, tokens, settings.max_tokens, run);
    emit({event: "done", time_ns: Number(now())});
    await llama.dispose();
}

try {
    if (Number(process.versions.node.split(".")[0]) < 20)
        throw new Error(`node-llama-cpp needs Node.js 20, and ${process.execPath} is ${process.version}`);
    await profile(JSON.parse(process.argv[2]));
} catch (error) {
    emit({event: "error", message: String(error?.message ?? error), usage: error instanceof UsageError});
    process.exitCode = error instanceof UsageError ? 2 : 1;
}
