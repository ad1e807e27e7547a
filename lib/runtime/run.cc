#include "lib/runtime/run.h"

#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/chat/chat.h"
#include "lib/runtime/chat/line_editor.h"
#include "lib/runtime/chat/text_commands.h"
#include "lib/runtime/classify.h"
#include "lib/runtime/doctor.h"
#include "lib/runtime/generation/batch.h"
#include "lib/runtime/generation/prompt_cache.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {
namespace {

int run_chat(const RunOptions& options) {
  if (options.prompt_cache) check_prompt_cache(*options.prompt_cache);
  Session session = load_session(options);
  SignalWatch signals;
  LineEditor editor(signals, options.no_history ? "" : history_path());
  Chat chat(session, options, editor, signals, write_stdout, shows_styles(STDOUT_FILENO));
  return chat.run();
}

}  // namespace

int run(const RunOptions& options) {
  options.check();
  if (options.doctor) return run_doctor(options);
  const std::string model = options.model ? *options.model : "";
  if (!model.empty() && is_classifier_directory(model)) {
    options.given.require(kClassify, "with a classifier");
    return run_classifier(options, model), 0;
  }
  if (!options.images.empty()) {
    // Words without quotes are more likely to be a prompt than names of files that are not there.
    if (io::is_regular_file(options.images.front())) find_model(model);  // or kMissing
    fail(ErrorKind::kUsage, "unexpected argument ", quoted(options.images.front()), ": ",
         quoted(model), " is no classifier, which alone takes pictures; a prompt comes after -p");
  }
  if (options.render) return run_render(options), 0;
  if (options.tokenize) return run_tokenize(options), 0;
  if (options.detokenize) return run_detokenize(options), 0;

  if (options.batch) {
    LineInput input(*options.batch);  // a missing file is told before the model is loaded
    Session session = load_session(options);
    return run_batch(options, session, input);
  }

  const bool has_prompt = options.prompt || options.ids;
  const bool wants_answer = has_prompt || !options.files.empty() || options.json || options.logits;
  if (!wants_answer && is_terminal(0) && is_terminal(1)) {
    options.given.require(kChat, "in a chat: give a prompt, with -p or on standard input");
    return run_chat(options);
  }

  // What the prompt is must be known before the model is loaded: a usage error comes at once.
  std::string prompt;
  if (!options.ids) {
    prompt = prompt_text(options);
    // The newline that ends the last line of a piped text is not meant to be read by the model.
    if (!prompt.empty() && prompt.back() == '\n' && prompt != options.prompt) prompt.pop_back();
  }
  if (!has_prompt && prompt.empty() && !options.files.empty()) {
    fail(ErrorKind::kMalformed, io::place_of(options.files.front()),
         options.files.size() > 1 ? " and the other files are" : " is",
         " empty: there is no prompt");
  }
  if (!has_prompt && prompt.empty()) {
    fail(ErrorKind::kUsage, "no prompt: give one with -p, -f or on standard input",
         is_terminal(0) ? "" : ", or start the chat in a terminal");
  }
  if (options.prompt_cache) check_prompt_cache(*options.prompt_cache);
  if (options.logits) io::check_replaceable(*options.logits, "\x93NUMPY", "a .npy file");
  if (options.logits && options.ids && !options.tokenizer) return write_logits_of_ids(options), 0;
  Session session = load_session(options);
  return run_one_shot(options, session, prompt);
}

}  // namespace lumen::runtime
