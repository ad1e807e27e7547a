#include "lib/runtime/run_options.h"

#include <iterator>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/tool/command_docs.h"

namespace lumen::runtime {

namespace {

constexpr int64_t kMaxParallel = 256;

void require_pairs(const std::string& option, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    if (setting.find('=') == std::string::npos || setting[0] == '=') {
      fail(ErrorKind::kUsage, option, ": ", quoted(setting), " has not the form key=value");
    }
    require_utf8(setting, option);
  }
}

}  // namespace

void RunOptions::check() const {
  auto need = [](bool has, bool needs, const char* flag, const char* needed) {
    if (has && !needs) fail(ErrorKind::kUsage, flag, " needs ", needed);
  };
  auto exclude = [](bool a, bool b, const char* first, const char* second) {
    if (a && b) fail(ErrorKind::kUsage, first, " and ", second, " do not go together");
  };
  const struct {
    bool asked;
    const char* flag;
    RunTask task;
  } tasks[] = {
      {tokenize, "--tokenize", kTokenize},       {detokenize, "--detokenize", kDetokenize},
      {render.has_value(), "--render", kRender}, {doctor, "--doctor", kDoctor},
      {batch.has_value(), "--batch", kBatch},    {logits.has_value(), "--logits", kLogits}};
  for (const auto& task : tasks) {
    for (const auto* other = &task + 1; other != std::end(tasks); ++other) {
      exclude(task.asked, other->asked, task.flag, other->flag);
    }
  }
  need(jsonl, tokenize || detokenize, "--jsonl", "--tokenize or --detokenize");
  need(parallel.has_value(), batch.has_value(), "--parallel", "--batch FILE.jsonl");
  need(on_bad_line != "stop", batch.has_value(), "--on-bad-line", "--batch FILE.jsonl");
  need(render.has_value(), render_context.has_value(), "--render", "--context FILE.json");
  need(render_context.has_value(), render.has_value(), "--context", "--render TEMPLATE.jinja");
  need(now.has_value(), render.has_value(), "--now", "--render TEMPLATE.jinja");
  unsigned task = kChat | kAnswer | kClassify;
  std::string place = "without --tokenize or --detokenize";  // of what is not refused above
  for (const auto& one : tasks) {
    if (one.asked) task = one.task, place = str("with ", one.flag);
  }
  given.require(task, place);
  const bool has_text = prompt || !files.empty();
  exclude(jsonl, has_text || ids, "--jsonl", "a prompt on the command line");
  exclude(ids.has_value(), has_text || system, "--ids", "--prompt, --file or --system");
  exclude(raw, ids.has_value(), "--raw", "--ids");
  exclude(raw, hide_thinking, "--raw", "--hide-thinking");
  exclude(raw, system.has_value(), "--raw", "--system");
  const bool sets_template = chat_template || !template_arguments.empty();
  exclude(raw, sets_template, "--raw", "--chat-template or --template-arg");
  exclude(ids.has_value(), sets_template, "--ids", "--chat-template or --template-arg");
  exclude(!images.empty(), has_text || ids || system, "pictures", "a prompt");
  exclude(grammar.has_value(), json_schema.has_value(), "--grammar", "--json-schema");
  exclude(draft.has_value(), lookup.has_value(), "--draft", "--lookup");
  if (logits && max_tokens.value_or(0) > 0) {
    fail(ErrorKind::kUsage,
         "--max-tokens has no effect with --logits, which generates no tokens: leave it out or 0");
  }
  require_pairs("set", overrides);
  require_pairs("template-arg", template_arguments);
  for (const std::string& text : stop) {
    if (text.empty()) fail(ErrorKind::kUsage, "stop: the text to stop at is empty");
    if (!is_valid_utf8(text)) fail(ErrorKind::kUsage, "stop: ", quoted(text), " is not UTF-8");
  }
}

void declare(CommandLine& line, RunOptions& options) {
  constexpr unsigned kReading = kChat | kAnswer | kBatch | kLogits;
  constexpr unsigned kLoading = kReading | kDoctor;
  const auto matters_to = [&](unsigned tasks) { line.matters_to(tasks, options.given); };
  matters_to(kLoading | kTokenize | kDetokenize | kClassify);
  line.add_positional(path_field("model", "MODEL",
                                 "GGUF file, Hugging Face directory or org/name, llama2.c .bin "
                                 "(built-in)",
                                 options.model));
  matters_to(kClassify);
  line.add_positional(list_field(
      "image", "FILE", "pictures or tables (CSV), if MODEL is a classifier", options.images));

  line.group("Prompt");
  matters_to(kAnswer | kLogits | kTokenize);
  line.add(
      text_field("prompt", "TEXT", "answer this and exit; piped stdin is appended", options.prompt),
      "p");
  line.add(list_field("file", "FILE", "answer the text of FILE, or --prompt with it (repeatable)",
                      options.files),
           "f");
  matters_to(kReading);
  line.add(text_field("system", "TEXT", "system prompt", options.system), "s");
  matters_to(kAnswer | kLogits | kBatch);
  line.add(switch_field("raw", "continue the prompt as it is, without chat template", options.raw));
  matters_to(kAnswer | kLogits | kDetokenize);
  line.add(text_field("ids", "JSON", "the prompt as token ids: '[1, 2, 3]'", options.ids));
  // Scripts say how an answer would be made where only logits are asked for, too: with --logits
  // check() takes 0.
  matters_to(kReading);
  Field most =
      number_field("max-tokens", "end the answer after N tokens (when the context is full)",
                   options.max_tokens, 0, limits::kContext);
  most.set = [set = most.set, &options](std::string_view value) {
    if (value == "-1") return options.max_tokens.reset();  // llama.cpp's word for no limit
    set(value);
  };
  line.add(most, "n");
  matters_to(kChat | kAnswer | kBatch);
  line.add(
      list_field("stop", "TEXT", "end the answer before this text (repeatable)", options.stop));
  line.add(path_field("json-schema", "FILE",
                      "answer with JSON of this JSON Schema; also the schema itself: '{}'",
                      options.json_schema));
  matters_to(kBatch);
  line.add(path_field("batch", "FILE.jsonl",
                      "answer one prompt per line, as JSON objects, to stdout; -: stdin",
                      options.batch));

  line.group("Sampling");
  matters_to(kReading);
  line.add(options.sampling.usual_fields());

  line.group("Model");
  matters_to(kLoading | kTokenize | kDetokenize);
  line.add(path_field("tokenizer", "FILE",
                      "vocabulary to use: tokenizer.json or .bin, .model, GGUF, directory",
                      options.tokenizer));
  matters_to(kLoading);
  line.add(path_field("chat-template", "FILE.jinja", "chat template to use instead of the model's",
                      options.chat_template));
  line.add(list_field("template-arg", "KEY=VALUE",
                      "variable of the template, e.g. enable_thinking=false (repeatable)",
                      options.template_arguments));
  line.add(number_field("ctx", "context length in tokens (model's own, at most 4096)",
                        options.context, 1, limits::kContext),
           "c");
  matters_to(~0u);
  line.add_threads(number_field("threads", "threads to compute with (physical cores)",
                                options.threads, 1, kMaxThreads));
  matters_to(kLoading);
  line.add(choice_field("kv", "type of the KV cache (f16)", options.kv, {"f16", "f32", "q8_0"}));
  Field lora = list_field("lora", "ADAPTER",
                          "LoRA adapter: directory (PEFT, MLX) or GGUF; ADAPTER=0.5 scales it",
                          options.lora);
  lora.set = [set = lora.set](std::string_view value) {
    if (value.empty()) fail(ErrorKind::kUsage, "lora: an empty name, perhaps of an unset variable");
    set(value);
  };
  line.add(lora);
  matters_to(kChat | kAnswer);
  line.add(path_field("draft", "MODEL", "small model that guesses ahead; same vocabulary",
                      options.draft));
  line.add(path_field("prompt-cache", "FILE",
                      "keep what was read: go on with FILE if it fits, replace it at the end",
                      options.prompt_cache));
  matters_to(kLoading);
  line.add(list_field("set", "KEY=VALUE", "override a config value, e.g. rope_theta (repeatable)",
                      options.overrides));

  line.group("Output");
  matters_to(kAnswer | kBatch | kClassify | kDoctor);
  line.add_json("print one JSON object with text, tokens and timings", options.json);
  matters_to(kReading);
  line.add(switch_field("stats", "print speed and memory to stderr", options.stats));

  line.group("Without generating");
  matters_to(kTokenize);
  line.add(
      switch_field("tokenize", "print the prompt's token ids as a JSON array", options.tokenize));
  matters_to(kDetokenize);
  line.add(switch_field("detokenize", "print the text of the ids (JSON array) on stdin",
                        options.detokenize));
  matters_to(kRender);
  line.add(path_field("render", "FILE.jinja", "print a chat template rendered with --context",
                      options.render));
  line.add(path_field("context", "FILE.json", "its variables: messages, tools, bos_token, …",
                      options.render_context));

  line.group(kRareOptions);
  matters_to(kLogits);
  line.add(path_field("logits", "FILE.npy", "write the logits of every prompt position and exit",
                      options.logits));
  matters_to(kChat | kAnswer | kBatch);
  line.add(switch_field(
      "hide-thinking",
      "leave thinking blocks (<think>) out of answers; --json has them as \"thinking\"",
      options.hide_thinking));
  matters_to(kAnswer | kLogits);
  line.add(switch_field("show-prompt", "print the rendered prompt and its tokens to stderr",
                        options.show_prompt));
  matters_to(kAnswer);
  line.add(switch_field("profile", "print where the time went, by operation, to stderr",
                        options.profile));
  matters_to(kBatch);
  line.add(number_field("parallel", "answers of a batch that are generated at once (8)",
                        options.parallel, 1, kMaxParallel));
  line.add(choice_field("on-bad-line",
                        "what a line of a batch that cannot be answered does: stop ends the batch, "
                        "skip has its error printed in the place of its answer (stop)",
                        options.on_bad_line, {"stop", "skip"}));
  matters_to(kTokenize | kDetokenize);
  line.add(switch_field("jsonl",
                        "with --tokenize or --detokenize: one JSON string or array per line",
                        options.jsonl));
  line.add(choice_field("special",
                        "with --tokenize or --detokenize: add, or keep, control tokens (true)",
                        options.special, {"true", "false"}));
  matters_to(kRender);
  line.add(text_field("now", "TIME", "clock of --render: 2025-07-10T12:00:00", options.now));
  matters_to(kReading);
  line.add(
      switch_field("no-history", "do not keep the lines typed in the chat", options.no_history));
  line.add(options.sampling.rare_fields());
  matters_to(kChat | kAnswer);
  line.add(number_field("lookup", "guess up to N tokens ahead from the text so far; 0: none (7)",
                        options.lookup, 0, LanguageModel::kMostVerified - 1));
  matters_to(kChat | kAnswer | kBatch);
  line.add(
      path_field("grammar", "FILE.gbnf", "answer with a text of this grammar", options.grammar));
  matters_to(kDoctor);
  line.add(switch_field("doctor",
                        "tell what of this machine, and of MODEL if one is named, costs speed or "
                        "prevents answers (exit code 3), and exit",
                        options.doctor));
  matters_to(kLoading);
  line.add(switch_field("allow-nonfinite", "accept weights that are NaN or infinite",
                        options.allow_nonfinite));
  matters_to(kReading);
  line.add(switch_field("no-repack", "use the weights as they are in the file: slower, no copy",
                        options.no_repack));

  line.add_variable("XDG_STATE_HOME",
                    "the chat keeps the lines typed in XDG_STATE_HOME/lumen/history, else "
                    "~/.local/state/lumen/history");
  line.add_variable("VISUAL, EDITOR",
                    "the editor of /edit and Ctrl-X Ctrl-E in the chat: VISUAL, else EDITOR");
  line.add_example("lumen-run", "chat with the built-in model");
  line.add_example("lumen-run model.gguf -p 'Why?' -n 50", "print one answer");
  line.add_example("lumen-run model.gguf --batch questions.jsonl", "answer many prompts at once");
  line.add_example("lumen-run runs/mnist-lenet a.png b.png", "tell the class of pictures");
  line.add_example("lumen-run model.gguf --doctor", "look at the machine and the model");
  line.add_example("lumen-run DIR -p 'Sum up:' -f a.txt", "ask about a text");
  line.add_example("cat a.txt | lumen-run DIR -p 'Sum up:'", "the same");
}

}  // namespace lumen::runtime
