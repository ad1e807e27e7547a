// Rows of jsonl files: which kind of object, and what is wrong with it.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/language.h"
#include "lib/text/chat_template.h"

namespace lumen::data {
namespace {

// A row with the text it came from, to say where something is wrong.
class Row {
 public:
  explicit Row(const TextLine& line) : line_(line), json_(parse_json_row(line)) {}

  const io::Json& json() const { return json_; }

  [[noreturn]] void refuse(const std::vector<std::string>& path, std::string_view what) const {
    fail_at(line_, io::json_position(line_.text, path), what);
  }

  // The text that `path`, ending in `key`, leads to from `object`.
  const std::string& text(const io::Json& object, std::vector<std::string> path,
                          const std::string& key) const {
    const io::Json* value = io::find(object, key);
    path.push_back(key);
    if (value == nullptr || !value->is_string()) {
      refuse(path, str("\"", key, "\" is ", io::describe(value), ", expected a string"));
    }
    return value->get_ref<const std::string&>();
  }

 private:
  TextLine line_;
  io::Json json_;
};

// The role that a speaker of ShareGPT's rows has in "messages"; other names are roles themselves.
std::string_view role_of(std::string_view speaker) {
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {{"human", "user"},
                                                                      {"gpt", "assistant"}};
  for (const auto& [name, role] : kRoles) {
    if (name == speaker) return role;
  }
  return speaker;
}

// Whether every chat template may be expected to know the role, or to refuse it.
bool is_usual(std::string_view role) {
  return role == "system" || role == "user" || role == "assistant" || role == "tool";
}

// Refuses what is wrong below `path`.
auto refuse_below(const Row& row, std::vector<std::string> path) {
  return [&row, path = std::move(path)](ErrorKind, std::span<const std::string> part,
                                        std::string_view what) {
    std::vector<std::string> place = path;
    place.insert(place.end(), part.begin(), part.end());
    row.refuse(place, what);
  };
}

// A content: a string, or texts in parts.
std::string content_of(const Row& row, const io::Json& message, std::vector<std::string> path,
                       const std::string& key) {
  const io::Json* content = io::find(message, key);
  if (content == nullptr || !content->is_array() || content->empty()) {
    return row.text(message, path, key);
  }
  path.push_back(key);
  return text::join_parts(*content, refuse_below(row, std::move(path)));
}

// A message {"role", "content", …}, or one of ShareGPT's {"from", "value"}, in the first form. In
// "messages" a role may be any that the chat template has; the other spelling has a fixed set.
io::Json checked_message(const Row& row, const io::Json& message, std::vector<std::string> path) {
  const auto has = [&](const char* key) { return io::find_value(message, key) != nullptr; };
  const char* role_key = has("from") ? "from" : "role";
  const bool has_value = has("value") || (has("from") && !has("content"));
  const char* content_key = has_value ? "value" : "content";
  const bool is_shared = path.front() == "conversations" || has("from");
  if (is_shared && !has(role_key)) {
    row.refuse(path, str("a message has no \"from\" and no \"role\""));
  }
  const std::string& speaker = row.text(message, path, role_key);
  const std::string_view role = role_of(speaker);
  if (is_shared && !is_usual(role)) {
    path.emplace_back(role_key);
    row.refuse(path, str("\"", role_key, "\" is ", quoted(speaker, 40),
                         ", expected human or user, gpt or assistant, system, or tool; what other "
                         "roles a chat template has can stand in {\"messages\": …}"));
  }
  if (const io::Json* weight = io::find_value(message, "weight");
      weight != nullptr && *weight != 0 && *weight != 1) {
    path.emplace_back("weight");
    row.refuse(path, str("\"weight\" is ", io::describe(weight), ", expected 0 or 1"));
  }
  io::Json converted = message;
  for (const char* key : {"from", "value"}) converted.erase(key);
  converted["role"] = role;
  if (has(content_key) || !has("tool_calls")) {
    converted["content"] = content_of(row, message, path, content_key);
  }
  if (has("tool_calls")) {
    path.emplace_back("tool_calls");
    text::parse_arguments(converted["tool_calls"], refuse_below(row, std::move(path)));
  }
  return converted;
}

// The messages that stand in `key`.
io::Json checked_messages(const Row& row, const std::string& key) {
  const io::Json* messages = io::find(row.json(), key);
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    row.refuse({key}, str("\"", key, "\" is ", io::describe(messages),
                          ", expected an array of at least one message"));
  }
  io::Json checked = io::Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    const io::Json& message = (*messages)[i];
    const std::vector<std::string> path = {key, str(i)};
    if (!message.is_object()) {
      row.refuse(path, str("message ", i + 1, " is ", io::describe(&message),
                           ", expected an object with \"role\" and \"content\""));
    }
    checked.push_back(checked_message(row, message, path));
  }
  return checked;
}

// The row with its conversation, which stands in `key`, in "messages".
io::Json with_messages(const Row& row, const std::string& key) {
  io::Json converted = row.json();
  converted.erase(key);
  converted["messages"] = checked_messages(row, key);
  return converted;
}

// TRL's {"prompt": [message, …], "completion": [message, …]} as {"messages": …}, of which the
// prompt's have no weight unless it is learned, too
// (https://huggingface.co/docs/trl/dataset_formats).
io::Json messages_of_prompt(const Row& row, bool learns_prompt) {
  io::Json messages = checked_messages(row, "prompt");
  for (io::Json& message : messages) {
    if (!learns_prompt) message["weight"] = 0;
  }
  for (io::Json& message : checked_messages(row, "completion")) {
    messages.push_back(std::move(message));
  }
  io::Json converted = row.json();
  for (const char* key : {"prompt", "completion"}) converted.erase(key);
  converted["messages"] = std::move(messages);
  return converted;
}

// Alpaca's {"instruction": …, "input": …, "output": …} as {"messages": …}; other members stay. The
// input, where there is one, stands below the instruction after an empty line.
io::Json messages_of_alpaca(const Row& row) {
  std::string question = row.text(row.json(), {}, "instruction");
  if (io::find_value(row.json(), "input") != nullptr) {
    const std::string& input = row.text(row.json(), {}, "input");
    if (!input.empty()) question += "\n\n" + input;
  }
  io::Json converted = row.json();
  converted["messages"] = {
      {{"role", "user"}, {"content", std::move(question)}},
      {{"role", "assistant"}, {"content", row.text(row.json(), {}, "output")}}};
  for (const char* key : {"instruction", "input", "output"}) converted.erase(key);
  return converted;
}

// The rows of a file that is one array.
class ArrayOfRows {
 public:
  explicit ArrayOfRows(std::string_view text) : text_(text) {}

  void visit_each(const std::function<void(const TextLine&)>& visit) {
    skip_blanks();
    step();  // the bracket
    skip_blanks();
    if (next() == ']') {
      step();
    } else {
      visit_rows(visit);
    }
    skip_blanks();
    if (!at_end()) refuse("expected nothing behind the array of all rows");
  }

 private:
  // At least one, up to behind the closing bracket.
  void visit_rows(const std::function<void(const TextLine&)>& visit) {
    for (bool has_more = true; has_more; step()) {
      skip_blanks();
      visit(row());
      skip_blanks();
      has_more = next() == ',';
      if (!has_more && next() != ']') refuse("expected , or ] behind a row of the array");
    }
  }

  bool at_end() const { return at_ == text_.size(); }
  char next() const { return at_end() ? '\0' : text_[at_]; }
  void step() {
    if (at_end()) return;
    const char c = text_[at_++];
    column_ = c == '\n' ? 1 : column_ + ((c & 0xC0) != 0x80 ? 1 : 0);
    line_ += c == '\n' ? 1 : 0;
  }
  void skip_blanks() {
    while (!at_end() && std::string_view(" \t\r\n").find(next()) != std::string_view::npos) step();
  }

  // What is here, up to the end of a value: by brackets and strings alone, as it is parsed later.
  TextLine row() {
    const size_t begin = at_;
    const int64_t line = line_, indent = column_ - 1;
    int64_t depth = 0;
    for (bool in_string = false; !at_end(); step()) {
      const char c = next();
      if (c == '"') in_string = !in_string;
      if (c == '\\') step();  // and what it escapes
      if (in_string || c == '"') continue;
      if (depth == 0 && (c == ',' || c == ']')) break;
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      if (depth > 0 || (c != '}' && c != ']')) continue;
      step();
      break;
    }
    const std::string_view text = text_.substr(begin, at_ - begin);
    if (text.empty()) refuse("expected a row");
    if (text.size() > limits::kDataRowBytes) {
      fail(ErrorKind::kMalformed, "line ", line, ": has ", text.size(), " bytes; the limit is ",
           limits::kDataRowBytes);
    }
    return {text, line, indent};
  }

  [[noreturn]] void refuse(std::string_view expected) const {
    const std::string found = at_end() ? "the end" : quoted(text_.substr(at_, 1));
    fail(ErrorKind::kMalformed, "line ", line_, ", column ", column_, ": found ", found, ", ",
         expected);
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1, column_ = 1;
};

}  // namespace

void for_each_json_row(std::string_view text, const std::function<void(const TextLine&)>& visit) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '[') {
    ArrayOfRows(text).visit_each(visit);
  } else {
    for_each_line(text, visit);
  }
}

std::string why_no_row(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = line.find_first_not_of(kBlanks), last = line.find_last_not_of(kBlanks);
  if (first == line.npos) return "";
  const bool is_array = line[first] == '[';
  if (!is_array && !(line[first] == '{' && first == last)) return "";
  return str("found the beginning of an ", is_array ? "array" : "object of several lines",
             ", expected an object on this line: each line is a row of its own (jq -c ",
             is_array ? "'.[]'" : "'.'", " FILE writes rows so)");
}

io::Json parse_json_row(const TextLine& line) {
  check_utf8(line);
  if (const std::string why = why_no_row(line.text); !why.empty()) {
    fail_at(line, line.text.find_first_of("[{"), why);
  }
  io::JsonLimits limits;
  limits.first_line = line.number;
  io::Json row;
  // parse_json puts a place before its message; here the file is named by the caller.
  try {
    row = io::parse_json(line.text, "", limits);
  } catch (const Error& error) {
    if (line.indent > 0) {  // again, for the column
      const std::string whole =
          std::string(static_cast<size_t>(line.indent), ' ').append(line.text);
      return parse_json_row({whole, line.number});
    }
    std::string_view why = error.what();
    if (why.starts_with(": ")) why.remove_prefix(2);
    throw Error(error.kind(), std::string(why));
  }
  if (!row.is_object()) {
    fail_at(line, 0, str("found ", io::describe(&row), ", expected an object"));
  }
  return row;
}

Document encode_json_row(const TextLine& line, TextEncoder& encoder) {
  const Row row(line);
  const auto has = [&](const char* key) { return io::find(row.json(), key) != nullptr; };
  // What goes wrong behind the parser concerns the row as a whole.
  const auto in_row = [&](auto&& encode) {
    return with_context([&] { return str("line ", line.number, ", column ", line.indent + 1); },
                        encode);
  };
  for (const char* key : {"messages", "conversations"}) {
    if (!has(key)) continue;
    const io::Json converted = with_messages(row, key);
    return in_row([&] { return encoder.chat(converted); });
  }
  if (has("instruction") || has("output")) {
    const io::Json converted = messages_of_alpaca(row);
    return in_row([&] { return encoder.chat(converted); });
  }
  if (has("prompt") && io::find(row.json(), "prompt")->is_array()) {
    const io::Json converted = messages_of_prompt(row, encoder.learns_prompts());
    return in_row([&] { return encoder.chat(converted); });
  }
  if (has("prompt") || has("completion")) {
    const std::string& prompt = row.text(row.json(), {}, "prompt");
    const std::string& completion = row.text(row.json(), {}, "completion");
    return in_row([&] { return encoder.completion(prompt, completion); });
  }
  if (has("text")) {
    const std::string& text = row.text(row.json(), {}, "text");
    return in_row([&] { return encoder.text(text); });
  }
  std::string keys;
  for (const auto& [key, value] : row.json().get_ref<const io::Json::object_t&>()) {
    keys += (keys.empty() ? "" : ", ") + quoted(key, 40);
    if (keys.size() > 200) break;
  }
  row.refuse({}, str("found an object with ", keys.empty() ? "no keys" : keys,
                     ", expected \"messages\", \"conversations\", \"instruction\" ",
                     "with \"output\", \"prompt\" with \"completion\", or \"text\""));
}

}  // namespace lumen::data
