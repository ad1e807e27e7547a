// One prompt, one answer: lumen-run without a terminal or with -p.
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/npy.h"
#include "lib/runtime/chat/text_commands.h"
#include "lib/runtime/generation/prompt.h"
#include "lib/runtime/generation/prompt_cache.h"
#include "lib/runtime/run.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/report.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {
namespace {

Prompt prompt_of_ids(const RunOptions& options) {
  auto ids = parse_ids(*options.ids, "ids");
  if (ids.empty()) fail(ErrorKind::kUsage, "ids: the array is empty");
  return {"", std::move(ids), true};
}

Prompt make_prompt(const RunOptions& options, Session& session, const std::string& text) {
  if (options.ids) return prompt_of_ids(options);
  if (options.raw) return raw_prompt(session, text);
  if (!session.format.chat_template()) session.notices.push_back(kNoTemplateNotice);
  std::vector<Message> messages;
  if (options.system) messages.push_back({"system", *options.system});
  messages.push_back({"user", text});
  return chat_prompt(session, messages);
}

void show(const RunOptions& options, const Prompt& prompt,
          const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) write_stderr("note: " + notice + "\n");
  if (!options.show_prompt) return;
  std::string out;
  append_safe_text(out, prompt.text, TextSafety::kPipe);
  if (!out.empty() && out.back() != '\n') out += '\n';
  for (const int32_t id : prompt.ids) out += str(id, " ");
  out.back() = '\n';
  write_stderr(out);
}

}  // namespace

void write_logits_of_ids(const RunOptions& options) {
  const Prompt prompt = prompt_of_ids(options);
  std::vector<std::string> notices;
  const auto model = load_model(options, notices);
  check_prompt(prompt, *model);
  show(options, prompt, notices);
  io::write_npy(*options.logits, model->logits(prompt.ids));
}

int run_one_shot(const RunOptions& options, Session& session, const std::string& text) {
  const Prompt prompt = make_prompt(options, session, text);
  check_prompt(prompt, *session.model);
  if (!prompt.dropped.empty()) session.notices.push_back(dropped_notice(prompt.dropped));
  show(options, prompt, session.notices);
  if (options.logits) {
    io::write_npy(*options.logits, session.model->logits(prompt.ids));
    return 0;
  }

  const SamplingSettings settings = sampling_settings(options.sampling, session);
  const bool to_terminal = is_terminal(1);
  const TextSafety safety = to_terminal   ? TextSafety::kTerminal
                            : options.raw ? TextSafety::kRaw
                                          : TextSafety::kPipe;
  std::string safe;
  bool ends_line = true;
  const auto show = [&](std::string_view piece, bool is_dim) {
    if (options.json) return;
    safe.clear();
    append_safe_text(safe, piece, safety);
    if (!safe.empty()) ends_line = safe.back() == '\n';
    write_stdout(is_dim ? dimmed(safe) : safe);
  };
  const auto print = [&](std::string_view piece) { show(piece, /*is_dim=*/false); };
  Sampler sampler = make_sampler(settings, session);
  Generator generator = make_generator(options, session);
  if (options.prompt_cache) {
    const std::string notice = load_prompt_cache(*options.prompt_cache, generator);
    if (!notice.empty()) write_stderr("note: " + notice + "\n");
  }
  GenerationProfile profile;
  GenerationOptions generation = generation_options(options, session);
  if (options.profile) generation.profile = &profile;
  if (shows_styles(STDOUT_FILENO)) {
    generation.thought_sink = [&](std::string_view piece) { show(piece, /*is_dim=*/true); };
  }
  SignalWatch signals;
  const auto result = generator.generate(prompt.ids, sampler, generation, prompt.is_continued,
                                         print, signals.stop_flag());
  if (options.json) write_stdout(to_json(session, result, settings).dump() + "\n");
  if (!ends_line) write_stdout("\n");
  if (options.stats) write_stderr(describe(session, result, settings));
  if (options.profile) write_stderr(describe(profile, session, result));
  if (options.prompt_cache) save_prompt_cache(*options.prompt_cache, generator);
  if (result.stop_reason != StopReason::kInterrupted) return 0;
  return 128 + (signals.termination() ? signals.termination() : SIGINT);
}

}  // namespace lumen::runtime
