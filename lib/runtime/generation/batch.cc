#include "lib/runtime/generation/batch.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/language.h"
#include "lib/runtime/chat/conversation.h"
#include "lib/runtime/tool/foreign_options.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/report.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {
namespace {

// Finished answers that wait for the one of an earlier line, per slot: beyond that no new line is
// taken up.
constexpr int64_t kWaitingPerSlot = 64;

// The keys of sampling options that are more than a number or a switch.
constexpr std::string_view kBreakers = "dry_sequence_breakers", kBias = "logit_bias",
                           kSamplers = "samplers";

// The keys of variables of the chat template.
constexpr std::string_view kSystem = "system", kTools = "tools", kTemplateArgs = "template_args";

// The key that stands for a sampling option: "top_k" for "top-k".
std::string key_of(const Field& option) {
  if (option.name == "temp") return "temperature";
  std::string key = option.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// The text or texts of a key.
std::vector<std::string> texts_of(std::string_view key, const io::Json& value) {
  std::vector<std::string> texts;
  auto add = [&](const io::Json& text) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      fail(ErrorKind::kMalformed, key, ": expected a text or texts, none empty, found ",
           io::describe(&text));
    }
    texts.push_back(text.get<std::string>());
  };
  if (!value.is_array()) return add(value), texts;
  for (const io::Json& text : value) add(text);
  return texts;
}

// The value of an option as a command line has it. 40.0 is 40, as in JSON: some programs write
// whole numbers so.
std::string option_text(const Field& option, const io::Json& value) {
  const std::string key = key_of(option);
  if (key == kSamplers) return join(texts_of(key, value), ";");
  const bool is_switch = option.value.empty();
  if (is_switch ? !value.is_boolean() : !value.is_number()) {
    fail(ErrorKind::kMalformed, key, ": expected ", is_switch ? "true or false" : "a number",
         ", found ", io::describe(&value));
  }
  if (is_switch) return value.dump();
  const auto number = value.get<double>();
  const bool is_whole = std::trunc(number) == number && std::abs(number) < 0x1p53;
  return is_whole ? str(static_cast<int64_t>(number)) : value.dump();
}

// {"13": 2.5, " the": "-inf"}.
std::vector<LogitBias> biases_of(const io::Json& value) {
  if (!value.is_object()) {
    fail(ErrorKind::kMalformed, kBias, ": expected an object of biases by token, found ",
         io::describe(&value));
  }
  std::vector<LogitBias> biases;
  for (const auto& [token, bias] : value.items()) {
    if (!bias.is_number() && !bias.is_string()) {
      fail(ErrorKind::kMalformed, kBias, ": expected a number or \"-inf\" for ", quoted(token),
           ", found ", io::describe(&bias));
    }
    biases.push_back(
        make_logit_bias(token, bias.is_string() ? bias.get<std::string>() : bias.dump()));
  }
  return biases;
}

// Throws what was wrong with the option that `key` stands for, "OPTION: …", as that of the key.
[[noreturn]] void refuse_key(std::string_view key, const Error& error) {
  const std::string_view found = error.what();
  fail(ErrorKind::kMalformed, key, found.substr(found.find(':')));
}

// Reads the keys of `object` that say how to sample. Throws Error(kMalformed) for one that is not
// known at all.
void read_sampling(const io::Json& object, SamplingOptions& sampling) {
  std::map<std::string, Field> options;
  std::vector<std::string> known = {"prompt",
                                    "messages",
                                    "id",
                                    std::string(kSystem),
                                    "stop",
                                    "max_tokens",
                                    "grammar",
                                    "json_schema",
                                    std::string(kTools),
                                    std::string(kTemplateArgs),
                                    std::string(kBreakers),
                                    std::string(kBias)};
  for (Field& field : sampling.fields()) {
    if (field.repeatable) continue;  // the last two of the above
    const std::string key = key_of(field);
    known.push_back(key);
    options.emplace(key, std::move(field));
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string ours = foreign_key(key), near = ours.empty() ? nearest(key, known) : ours;
      fail(ErrorKind::kMalformed, "unknown key ", quoted(key),
           near.empty() ? str("; known: ", join(known, ", ")) : str("; did you mean ", near, "?"));
    }
    if (value.is_null()) continue;
    try {
      if (key == kBreakers) sampling.dry_sequence_breakers = texts_of(key, value);
      if (key == kBias) sampling.logit_bias = biases_of(value);
      const auto option = options.find(key);
      if (option == options.end()) continue;
      option->second.set(option_text(option->second, value));
    } catch (const Error& error) {  // "OPTION: …"
      refuse_key(key, error);
    }
  }
}

// `system` comes first unless the messages begin with one of their own.
std::vector<Message> messages_of(const io::Json& object, const std::optional<std::string>& system) {
  std::vector<Message> messages;
  if (const io::Json* list = io::find_value(object, "messages")) {
    append_messages(*list, messages);
    if (messages.empty()) fail(ErrorKind::kMalformed, "messages: the array is empty");
  } else {
    messages.push_back({"user", io::get_string(object, "prompt")});
  }
  const bool has_system = messages.front().role == kSystem;
  if (has_system && io::find_value(object, kSystem)) {
    fail(ErrorKind::kMalformed, kSystem, ": the messages begin with a system message already");
  }
  if (system && !has_system) messages.insert(messages.begin(), {std::string(kSystem), *system});
  return messages;
}

// The variables of the chat template that a line sets.
io::Json variables_of(const io::Json& object, const PromptFormat& format) {
  io::Json variables = io::Json::object();
  if (const io::Json* given = io::find_value(object, kTemplateArgs)) {
    if (!given->is_object()) {
      fail(ErrorKind::kMalformed, kTemplateArgs, ": expected an object, found ",
           io::describe(given));
    }
    variables = *given;
  }
  if (const io::Json* tools = io::find_value(object, kTools)) {
    const auto refuse = [](const io::Json& found) {
      fail(ErrorKind::kMalformed, kTools, ": expected an array of objects, found ",
           io::describe(&found));
    };
    if (!tools->is_array()) refuse(*tools);
    for (const io::Json& tool : *tools) {
      if (!tool.is_object()) refuse(tool);
    }
    if (!tools->empty()) variables[std::string(kTools)] = *tools;
  }
  for (const auto& [name, value] : variables.items()) {
    try {
      format.require_variable(name);
    } catch (const Error& error) {
      fail(ErrorKind::kMalformed, name == kTools ? kTools : kTemplateArgs, ": ", error.what());
    }
  }
  return variables;
}

// What a line itself says, a null included, replaces the constraint of the command line.
void set_constraint(const io::Json& object, const Session& session, GenerationOptions& generation) {
  if (io::find(object, "grammar") || io::find(object, "json_schema")) {
    generation.constraint = nullptr;
  }
  const io::Json* schema = io::find_value(object, "json_schema");
  if (io::find_value(object, "grammar")) {
    if (schema) fail(ErrorKind::kMalformed, "grammar and json_schema do not go together");
    generation.constraint = session.constraints->of_grammar(io::get_string(object, "grammar"));
  } else if (schema) {
    generation.constraint = session.constraints->of_schema(*schema);
  }
}

// An integer beyond 64 bits has become a double: what was given cannot be given back.
void require_exact(const io::Json& id) {
  if (id.is_structured()) {  // as deep as the parser allows
    for (const io::Json& value : id) require_exact(value);
  } else if (id.is_number_float() && std::abs(id.get<double>()) >= 0x1p63) {
    fail(ErrorKind::kMalformed, "id: expected a string or an integer that fits 64 bits, found ",
         io::describe(&id));
  }
}

// The id of a line of which something is wrong, if that can be read.
std::optional<io::Json> id_of(std::string_view line) {
  try {
    const io::Json object = io::parse_json(line, "JSON");
    const io::Json* id = io::find(object, "id");
    if (id == nullptr) return std::nullopt;
    require_exact(*id);
    return *id;
  } catch (const Error&) {
    return std::nullopt;
  }
}

constexpr auto kIgnoreText = [](std::string_view) {};

// An answer that is being generated in a slot.
struct Sequence {
  Sequence(int64_t order, std::string line_place, int32_t in_slot, BatchRequest taken,
           const Session& session)
      : number(order),
        place(std::move(line_place)),
        slot(in_slot),
        request(std::move(taken)),
        sampler(make_sampler(request.sampling, session)),
        answer(session.format.tokenizer(), request.prompt.ids, session.model->context(), sampler,
               request.generation, request.prompt.is_continued, kIgnoreText) {}

  int64_t number;
  std::string place;  // "FILE: line N"
  int32_t slot;
  BatchRequest request;
  Sampler sampler;
  Answer answer;
  int32_t token = 0;  // to be fed next
};

class Batch {
 public:
  Batch(const RunOptions& options, Session& session, LineInput& input)
      : options_(options), session_(session), input_(input) {
    for (int64_t slot = session.model->slots(); slot-- > 0;) {
      free_slots_.push_back(static_cast<int32_t>(slot));
    }
  }

  int run();

 private:
  bool interrupted() const { return *signals_.stop_flag(); }
  bool has_room() const;
  bool await_line();
  void take();
  void take(const std::string& line);
  bool skips(const Error& error) const;
  void tell_error(int64_t number, const std::optional<io::Json>& id, const Error& error);
  void keep_error(int64_t number);
  void start(BatchRequest request, const std::string& place);
  bool advance(Sequence& sequence, std::span<const float> logits);
  void step();
  void finish(Sequence& sequence);
  void print_ready();

  const RunOptions& options_;
  Session& session_;
  LineInput& input_;
  SignalWatch signals_;

  std::vector<int32_t> free_slots_;
  std::vector<std::unique_ptr<Sequence>> active_;
  std::vector<int32_t> slots_, tokens_;  // of a step
  bool input_over_ = false;
  std::exception_ptr error_;  // what ended the input
  int64_t error_number_ = 0;  // of the answer that it stands for
  int64_t taken_ = 0, printed_ = 0;
  std::map<int64_t, std::string> waiting_;  // finished lines by number; "": no answer
  int64_t answers_ = 0, generated_ = 0, refused_ = 0;
};

// Whether the next line may be taken up.
bool Batch::has_room() const {
  return !input_over_ && !free_slots_.empty() &&
         taken_ - printed_ < kWaitingPerSlot * session_.model->slots();
}

// Whether a line, or the end of the input, has come. It is waited for only while nothing is being
// answered, and where signals interrupt: half a line may be all there is for hours.
bool Batch::await_line() {
  try {
    while (!input_.is_ready()) {
      if (!active_.empty() || interrupted()) return false;
      signals_.wait_readable(input_.descriptor());
    }
    return true;
  } catch (const Error&) {
    keep_error(taken_);
    return false;
  }
}

// Keeps the present exception, which ends the input; of several the one of the earliest line.
void Batch::keep_error(int64_t number) {
  if (!error_ || number < error_number_) {
    error_ = std::current_exception();
    error_number_ = number;
  }
  input_over_ = true;
}

// Whether the error is a line's own, and the batch is to go on.
bool Batch::skips(const Error& error) const {
  const ErrorKind kind = error.kind();
  return options_.on_bad_line == "skip" &&
         (kind == ErrorKind::kMalformed || kind == ErrorKind::kUnsupported ||
          kind == ErrorKind::kMismatch);
}

void Batch::tell_error(int64_t number, const std::optional<io::Json>& id, const Error& error) {
  io::Json out = {{"schema", 1}, {"error", error.what()}};
  if (id) out["id"] = *id;
  waiting_[number] = out.dump() + "\n";
  ++refused_;
}

void Batch::take() {
  try {
    std::string line;
    if (!input_.next(line)) {
      input_over_ = true;
    } else if (!is_blank(line)) {
      take(line);
    }
  } catch (const Error&) {
    keep_error(taken_);
  }
}

void Batch::take(const std::string& line) {
  const std::string place = str(input_.place(), ": line ", input_.number());
  try {
    with_context(place, [&] {
      BatchRequest request = parse_request(line, options_, session_);
      if (const std::string& dropped = request.prompt.dropped; !dropped.empty()) {
        write_stderr(str("note: ", place, ": ", dropped_notice(dropped), "\n"));
      }
      start(std::move(request), place);
    });
  } catch (const Error& error) {
    if (!skips(error)) throw;
    tell_error(taken_++, id_of(line), error);
  }
}

// Reads the prompt; its first token comes from the logits after it. The sequence gets its number
// and its slot only when nothing can fail any more: otherwise the next step would feed it a token
// that it does not have.
void Batch::start(BatchRequest request, const std::string& place) {
  const int32_t slot = free_slots_.back();
  auto sequence =
      std::make_unique<Sequence>(taken_, place, slot, std::move(request), std::as_const(session_));
  LanguageModel& model = *session_.model;
  model.select(slot);
  model.rewind(0);
  const auto logits = model.feed(sequence->request.prompt.ids, signals_.stop_flag());
  if (!logits.empty()) {  // else interrupted
    sequence->answer.prompt_read(0, model.position());
    if (!advance(*sequence, logits)) {
      finish(*sequence);
      ++taken_;
      return;
    }
  }
  free_slots_.pop_back();
  active_.push_back(std::move(sequence));
  ++taken_;
}

// Gives the sequence its next token; false if it has none because the answer is over.
bool Batch::advance(Sequence& sequence, std::span<const float> logits) {
  const auto token = sequence.answer.next(logits);
  if (token) sequence.token = *token;
  return token.has_value();
}

// One token more for every active answer. Those after which the model's output is no number end
// without a line, or with their error; the others go on.
void Batch::step() {
  slots_.clear();
  tokens_.clear();
  for (const auto& sequence : active_) {
    slots_.push_back(sequence->slot);
    tokens_.push_back(sequence->token);
  }
  const auto logits = session_.model->step(slots_, tokens_);
  const auto vocab = static_cast<size_t>(session_.model->vocab());
  for (size_t i = 0; i < active_.size(); ++i) {
    Sequence& sequence = *active_[i];
    try {
      const bool goes_on = with_context(
          sequence.place, [&] { return advance(sequence, logits.subspan(i * vocab, vocab)); });
      if (goes_on) continue;
      finish(sequence);
    } catch (const Error& error) {
      if (skips(error)) {
        tell_error(sequence.number, sequence.request.id, error);
      } else {
        keep_error(sequence.number);
        waiting_[sequence.number] = "";
      }
    }
    free_slots_.push_back(sequence.slot);
    active_[i] = nullptr;
  }
  std::erase(active_, nullptr);
}

void Batch::finish(Sequence& sequence) {
  const GenerationResult result = sequence.answer.finish(interrupted());
  ++answers_;
  generated_ += result.completion_tokens();
  io::Json out = to_json(session_, result, sequence.request.sampling);
  if (sequence.request.id) out["id"] = std::move(*sequence.request.id);
  waiting_[sequence.number] = out.dump() + "\n";
}

void Batch::print_ready() {
  for (auto next = waiting_.begin(); next != waiting_.end() && next->first == printed_;
       next = waiting_.erase(next), ++printed_) {
    write_stdout(next->second);
  }
}

int Batch::run() {
  const auto start = Clock::now();
  while (!interrupted()) {
    if (has_room() && await_line()) {
      take();
    } else if (!active_.empty()) {
      step();
    } else {
      break;
    }
    print_ready();
  }
  for (const auto& sequence : active_) finish(*sequence);
  print_ready();
  if (options_.stats) {
    const double seconds = seconds_since(start);
    write_stderr(str("batch     ", answers_, " answers, ", generated_, " tokens, ",
                     fixed(seconds * 1000, 1), " ms, ",
                     fixed(static_cast<double>(generated_) / seconds, 1), " tokens/s; up to ",
                     session_.model->slots(), " at once\n"));
  }
  if (refused_ > 0) {
    write_stderr(str("note: ", refused_, refused_ == 1 ? " line has" : " lines have",
                     " an error in the place of an answer\n"));
  }
  if (interrupted()) return 128 + (signals_.termination() ? signals_.termination() : SIGINT);
  if (error_) std::rethrow_exception(error_);
  return 0;
}

}  // namespace

BatchRequest parse_request(std::string_view line, const RunOptions& options,
                           const Session& session) {
  if (const std::string why = data::why_no_row(line); !why.empty()) {
    fail(ErrorKind::kMalformed, why);
  }
  const io::Json object = io::parse_json(line, "JSON");
  if (!object.is_object()) {
    fail(ErrorKind::kMalformed, "expected an object, found ", io::describe(&object));
  }
  BatchRequest request;
  SamplingOptions sampling = options.sampling;
  read_sampling(object, sampling);
  try {
    request.sampling = sampling_settings(sampling, session);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;
    refuse_key(kBias, error);  // the command line's was checked before
  }
  request.generation = generation_options(options, session);
  if (io::find_value(object, "max_tokens")) {
    request.generation.max_tokens = io::get_int(object, "max_tokens", 0, limits::kContext);
  }
  if (const io::Json* stop = io::find_value(object, "stop")) {
    request.generation.stop = texts_of("stop", *stop);
  }
  set_constraint(object, session, request.generation);
  if (const io::Json* id = io::find(object, "id")) {
    require_exact(*id);
    request.id = *id;
  }
  const bool has_messages = io::find_value(object, "messages") != nullptr;
  if (has_messages == (io::find_value(object, "prompt") != nullptr)) {
    fail(ErrorKind::kMalformed, "expected either \"prompt\" or \"messages\", found ",
         has_messages ? "both" : "neither");
  }
  std::optional<std::string> system = options.system;
  if (io::find_value(object, kSystem)) system = io::get_string(object, kSystem);
  const bool is_raw = options.raw && !has_messages;
  for (const std::string_view key : {kSystem, kTools, kTemplateArgs}) {
    if (is_raw && io::find_value(object, key)) {
      fail(ErrorKind::kMalformed, key, " and --raw do not go together");
    }
  }
  request.prompt = is_raw ? raw_prompt(session, io::get_string(object, "prompt"))
                          : chat_prompt(session, messages_of(object, system),
                                        variables_of(object, session.format));
  if (request.prompt.ids.empty()) {  // of a command line it would be kUsage
    fail(ErrorKind::kMalformed,
         "the prompt has no tokens and the model has no start token: expected at least one "
         "character of its vocabulary");
  }
  check_prompt(request.prompt, *session.model);
  return request;
}

int run_batch(const RunOptions& options, Session& session, LineInput& input) {
  if (!session.format.chat_template() && !options.raw) {
    session.notices.push_back(kNoTemplateNotice);
  }
  for (const std::string& notice : session.notices) write_stderr("note: " + notice + "\n");
  // What the command line has wrong is no line's fault.
  resolve_logit_bias(options.sampling.logit_bias, *session.format.tokenizer(),
                     session.model->vocab());
  return Batch(options, session, input).run();
}

}  // namespace lumen::runtime
