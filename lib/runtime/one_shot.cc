// One prompt, one answer: lumen-run without a terminal or with -p.
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/npy.h"
#include "lib/runtime/conversation.h"
#include "lib/runtime/environment.h"
#include "lib/runtime/output.h"
#include "lib/runtime/report.h"
#include "lib/runtime/run.h"
#include "lib/runtime/signals.h"
#include "lib/runtime/text_commands.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

struct Prompt {
  std::string text;  // rendered; "" with --ids
  std::vector<int32_t> ids;
  bool is_continued = false;  // the answer continues the text, no chat template
};

Prompt make_prompt(const RunOptions& options, Session& session, const std::string& text) {
  if (options.ids) return {"", parse_ids(*options.ids, "ids"), true};
  if (options.raw) return {text, session.format.encode(text), true};
  if (!session.format.chat_template()) {
    session.notices.push_back("the model has no chat template: the prompt is continued as it is");
  }
  std::vector<Message> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  const std::string rendered = session.format.render(messages);
  return {rendered, session.format.encode(rendered), !session.format.chat_template()};
}

void check_ids(const std::vector<int32_t>& ids, int64_t vocab) {
  for (const int32_t id : ids) {
    if (id >= vocab) {
      fail(ErrorKind::kMalformed, "token id ", id, " of the prompt is not below the model's ",
           vocab, " tokens");
    }
  }
}

void show_prompt(const Prompt& prompt) {
  std::string out;
  append_safe_text(out, prompt.text, TextSafety::kPipe);
  if (!out.empty() && out.back() != '\n') out += '\n';
  for (const int32_t id : prompt.ids) out += str(id, " ");
  out.back() = '\n';
  write_stderr(out);
}

io::Json sampling_json(const SamplingSettings& settings) {
  return {{"temperature", settings.temperature},
          {"top_k", settings.top_k},
          {"top_p", settings.top_p},
          {"min_p", settings.min_p},
          {"repeat_penalty", settings.repeat_penalty}};
}

io::Json result_json(const Session& session, const GenerationResult& result,
                     const SamplingSettings& settings) {
  constexpr double kMilliseconds = 1000;
  const GenerationTimings& timings = result.timings;
  return {{"schema", 1},
          {"model", to_valid_utf8(session.name)},
          {"text", to_valid_utf8(result.text)},
          {"token_ids", result.token_ids},
          {"prompt_tokens", result.prompt_tokens},
          {"completion_tokens", result.completion_tokens()},
          {"stop_reason", std::string(name(result.stop_reason))},
          {"seed", settings.seed},
          {"sampling", sampling_json(settings)},
          {"timings",
           {{"load_ms", session.load_seconds * kMilliseconds},
            {"prefill_ms", timings.prefill * kMilliseconds},
            {"first_token_ms", timings.first_token * kMilliseconds},
            {"decode_ms", timings.decode * kMilliseconds},
            {"prompt_tokens_per_second", result.prompt_tokens_per_second()},
            {"tokens_per_second", result.tokens_per_second()}}},
          {"threads", session.model->pool().threads()},
          {"peak_memory_bytes", peak_memory_bytes()},
          {"version", build_description()["version"]}};
}

}  // namespace

int run_one_shot(const RunOptions& options, Session& session, const std::string& text) {
  const Prompt prompt = make_prompt(options, session, text);
  check_prompt_size(prompt.ids.size(), session.model->context());
  check_ids(prompt.ids, session.model->vocab());
  for (const std::string& notice : session.notices) write_stderr("note: " + notice + "\n");
  if (options.show_prompt) show_prompt(prompt);
  if (options.logits) {
    io::write_npy(*options.logits, session.model->logits(prompt.ids));
    return 0;
  }

  const SamplingSettings settings =
      resolve_sampling(options.sampling, session.files.generation_config);
  const bool to_terminal = is_terminal(1);
  const TextSafety safety = to_terminal   ? TextSafety::kTerminal
                            : options.raw ? TextSafety::kRaw
                                          : TextSafety::kPipe;
  std::string safe;
  bool ends_line = true;
  auto print = [&](std::string_view piece) {
    if (options.json) return;
    safe.clear();
    append_safe_text(safe, piece, safety);
    if (!safe.empty()) ends_line = safe.back() == '\n';
    write_stdout(safe);
  };
  Sampler sampler(settings, session.model->vocab());
  Generator generator(*session.model, session.format.tokenizer());
  SignalWatch signals;
  const auto result = generator.generate(prompt.ids, sampler, generation_options(options, session),
                                         prompt.is_continued, print, signals.stop_flag());
  if (options.json) write_stdout(result_json(session, result, settings).dump() + "\n");
  if (!ends_line) write_stdout("\n");
  if (options.stats) write_stderr(describe(session, result, settings));
  if (result.stop_reason != StopReason::kInterrupted) return 0;
  return 128 + (signals.termination() ? signals.termination() : SIGINT);
}

}  // namespace lumen::runtime
