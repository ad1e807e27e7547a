#include "lib/runtime/generation/prompt_format.h"

#include <algorithm>
#include <cctype>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

constexpr const char* kTools = "tools";

// Control tokens with which published chat formats close a turn. Some models do not list theirs as
// an end token; one that their chat template uses ends an answer all the same.
constexpr const char* kTurnEnds[] = {
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>", "<|end|>",         "</s>",
    "<end_of_turn>", "<|end_of_turn|>", "<|eot|>",    "<|end_of_text|>", "<|endoftext|>"};

std::shared_ptr<const text::Tokenizer> load_vocabulary(const io::ModelFiles& files,
                                                       const std::string& tokenizer_path) {
  if (!tokenizer_path.empty()) return text::load_tokenizer(tokenizer_path);
  if (files.format == io::ModelFormat::kHuggingFace && !files.tokenizer_file.empty()) {
    return text::load_tokenizer(files.path);
  }
  if (files.gguf) return text::load_tokenizer(*files.gguf);
  fail(ErrorKind::kUsage, files.path, ": has no tokenizer of its own; name one with --tokenizer",
       files.format == io::ModelFormat::kLlama2c ? " tokenizer.bin or tokenizer.model" : " FILE");
}

// JSON, or text if it is none. Jinja itself has both spellings of these three; as a text "False"
// would be true.
io::Json variable_value(const std::string& text) {
  if (text == "True" || text == "False") return text == "True";
  if (text == "None") return nullptr;
  try {
    return io::parse_json(text, "JSON");
  } catch (const Error&) {
    if (text.find_first_of("[{\"") == 0) throw;  // meant as JSON
    return text;
  }
}

// Whether `name` stands in `source` as a word.
bool has_word(std::string_view source, std::string_view name) {
  const auto is_part = [&](size_t at) {
    return at < source.size() &&
           (std::isalnum(static_cast<unsigned char>(source[at])) || source[at] == '_');
  };
  for (size_t at = source.find(name); at != source.npos; at = source.find(name, at + 1)) {
    if ((at == 0 || !is_part(at - 1)) && !is_part(at + name.size())) return true;
  }
  return false;
}

// The variables that `arguments` set.
io::Json template_variables(const std::vector<std::string>& arguments, const PromptFormat& format) {
  io::Json variables = io::Json::object();
  for (const std::string& argument : arguments) {
    const std::string key = argument.substr(0, argument.find('='));
    try {
      format.require_variable(key);
      variables[key] = variable_value(argument.substr(key.size() + 1));
    } catch (const Error& error) {
      fail(ErrorKind::kUsage, "--template-arg ", quoted(argument), ": ", error.what());
    }
  }
  return variables;
}

}  // namespace

io::Json to_json(const Message& message) {
  io::Json object{{"role", message.role}, {"content", message.content}};
  object.update(message.more);
  return object;
}

PromptFormat PromptFormat::load(const io::ModelFiles& files, const std::string& tokenizer_path,
                                const TemplateOptions& options) {
  std::optional<text::ChatTemplate> chat_template;
  if (options.file) {
    chat_template = text::ChatTemplate::parse(io::read_file(*options.file, limits::kTemplateBytes),
                                              io::place_of(*options.file));
  } else if (auto found = files.chat_templates.find("default");
             found != files.chat_templates.end()) {
    chat_template = text::ChatTemplate::parse(found->second, files.path + ": chat template");
  }
  // llama2.c's own program starts every text with BOS.
  PromptFormat format(load_vocabulary(files, tokenizer_path), std::move(chat_template),
                      files.end_tokens, files.format == io::ModelFormat::kLlama2c);
  if (const auto found = files.chat_templates.find("tool_use");
      !options.file && found != files.chat_templates.end()) {
    format.tool_template_ = found->second;
    format.tool_template_place_ = files.path + ": chat template 'tool_use'";
  }
  format.template_variables_ = template_variables(options.arguments, format);
  return format;
}

PromptFormat::PromptFormat(std::shared_ptr<const text::Tokenizer> tokenizer,
                           std::optional<text::ChatTemplate> chat_template,
                           std::vector<io::EndToken> end_tokens, bool always_bos)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      channels_(channel_tokens(*tokenizer_)),
      wants_bos_(tokenizer_->adds_bos() || always_bos) {
  for (io::EndToken& end : end_tokens) add_end_token(end.id, std::move(end.source));
  for (const int32_t id : tokenizer_->end_tokens()) {
    add_end_token(id, str(tokenizer_->kind(), ": end token"));
  }
  if (channels_) {
    for (const int32_t id : {channels_->done, channels_->call}) {
      add_end_token(id, "it ends answers in channels");
    }
  }
  if (!chat_template_) return;
  for (const char* spelling : kTurnEnds) {
    const auto id = tokenizer_->id_of(spelling);
    if (channels_ && id == channels_->end) continue;
    if (id && tokenizer_->is_special(*id) &&
        chat_template_->source().find(spelling) != std::string::npos) {
      add_end_token(*id, "the chat template closes turns with it");
    }
  }
}

void PromptFormat::add_end_token(int32_t id, std::string source) {
  const bool known = std::any_of(end_tokens_.begin(), end_tokens_.end(),
                                 [&](const io::EndToken& end) { return end.id == id; });
  if (!known && id >= 0) end_tokens_.push_back({id, std::move(source)});
}

std::vector<int32_t> PromptFormat::end_token_ids() const {
  std::vector<int32_t> ids;
  for (const io::EndToken& end : end_tokens_) ids.push_back(end.id);
  return ids;
}

void PromptFormat::require_variable(const std::string& name) const {
  if (!chat_template_) {
    fail(ErrorKind::kUsage, "the model has no chat template; name one with --chat-template");
  }
  if (name == "messages" || name == "add_generation_prompt") {
    fail(ErrorKind::kUsage, "the conversation decides it");
  }
  const bool is_read = has_word(chat_template_->source(), name) || has_word(tool_template_, name);
  if (!is_read) {
    fail(ErrorKind::kUsage, "the chat template has no variable ", quoted(name));
  }
}

std::string PromptFormat::render(const std::vector<Message>& messages, bool begins_answer,
                                 const io::Json& variables) const {
  if (!chat_template_) {
    std::string text;
    for (const Message& message : messages) {
      if (!text.empty()) text += '\n';
      text += message.content;
    }
    return text;
  }
  text::ChatInput input;
  input.add_generation_prompt = begins_answer;
  for (const Message& message : messages) {
    input.messages.push_back(to_json(message));
  }
  const text::SpecialIds& special = tokenizer_->special_ids();
  if (special.bos) input.bos_token = std::string(tokenizer_->token_text(*special.bos));
  if (special.eos) input.eos_token = std::string(tokenizer_->token_text(*special.eos));
  input.extra = template_variables_;
  input.extra.update(variables);
  if (input.extra.contains(kTools) && !tool_template_.empty()) {
    return text::render_chat(text::ChatTemplate::parse(tool_template_, tool_template_place_), input,
                             {});
  }
  return text::render_chat(*chat_template_, input, {});
}

std::vector<int32_t> PromptFormat::encode(std::string_view prompt) const {
  return with_bos(tokenizer_->encode(prompt, {.add_special = false, .parse_special = true}));
}

std::vector<int32_t> PromptFormat::encode(std::string_view prompt,
                                          text::GrowingText& growing) const {
  return with_bos(growing.encode(prompt));
}

std::vector<int32_t> PromptFormat::with_bos(std::vector<int32_t> ids) const {
  const auto bos = tokenizer_->special_ids().bos;
  if (wants_bos_ && bos && (ids.empty() || ids[0] != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

std::string PromptFormat::check_vocabulary(int64_t rows, bool exact,
                                           const std::string& place) const {
  const int32_t tokens = tokenizer_->vocab_size();
  const std::string found = str(io::place_of(place), ": the tokenizer (", tokenizer_->kind(),
                                ") has ", tokens, " tokens, the model ", rows);
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorKind::kMismatch, found, parts...,
         ": they do not belong together; give the tokenizer that the model was trained with");
  };
  if (exact && tokens != rows) refuse();
  // Vocabularies with a control token or two beyond the embedding are published; such a token
  // in a prompt is refused when it comes.
  for (int64_t id = rows; id < tokens; ++id) {
    const auto token = static_cast<int32_t>(id);
    if (!tokenizer_->is_special(token) && !tokenizer_->token_text(token).empty()) refuse();
  }
  const auto bos = tokenizer_->special_ids().bos;
  if (wants_bos_ && bos && *bos >= rows) refuse(", and every prompt begins with token ", *bos);
  if (2 * int64_t{tokens} >= rows) return "";
  return found + ": perhaps they do not belong together";
}

}  // namespace lumen::runtime
