// Rows of jsonl files: which kind of object, and what is wrong with it.
#include "lib/base/error.h"
#include "lib/data/language.h"

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

// Whether a content is a list of parts, as OpenAI's API has it, which then are all texts: pictures
// are not learnt from.
bool has_parts(const Row& row, const io::Json& message, std::vector<std::string> path) {
  const io::Json* content = io::find(message, "content");
  if (content == nullptr || !content->is_array() || content->empty()) return false;
  path.emplace_back("content");
  for (size_t i = 0; i < content->size(); ++i) {
    path.push_back(str(i));
    const io::Json& part = (*content)[i];
    const io::Json* type = part.is_object() ? io::find(part, "type") : nullptr;
    if (type == nullptr || *type != "text") {
      row.refuse(path, str("part ", i + 1, " of \"content\" is ",
                           type == nullptr ? io::describe(&part) : "of type " + type->dump(),
                           ", expected {\"type\": \"text\", \"text\": …}"));
    }
    row.text(part, path, "text");
    path.pop_back();
  }
  return true;
}

// The same row with the parts of each content joined, line by line.
io::Json with_joined_parts(const io::Json& row) {
  io::Json converted = row;
  for (io::Json& message : converted["messages"]) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    std::string joined;
    for (size_t i = 0; i < content->size(); ++i) {
      joined += (i > 0 ? "\n" : "") + (*content)[i]["text"].get_ref<const std::string&>();
    }
    *content = std::move(joined);
  }
  return converted;
}

// Returns whether some message has_parts.
bool check_messages(const Row& row) {
  const io::Json& messages = *io::find(row.json(), "messages");
  if (!messages.is_array() || messages.empty()) {
    row.refuse({"messages"}, str("\"messages\" is ", io::describe(&messages),
                                 ", expected an array of at least one message"));
  }
  bool in_parts = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::vector<std::string> path = {"messages", str(i)};
    if (!messages[i].is_object()) {
      row.refuse(path, str("message ", i + 1, " is ", io::describe(&messages[i]),
                           ", expected an object with \"role\" and \"content\""));
    }
    row.text(messages[i], path, "role");
    const bool calls_tools = io::find_value(messages[i], "tool_calls") != nullptr;
    const bool has_content = io::find_value(messages[i], "content") != nullptr;
    if (has_parts(row, messages[i], path)) {
      in_parts = true;
    } else if (has_content || !calls_tools) {
      row.text(messages[i], path, "content");
    }
  }
  return in_parts;
}

// The role that a speaker of ShareGPT's rows has in "messages"; null: none.
const char* role_of(std::string_view speaker) {
  constexpr std::pair<std::string_view, const char*> kRoles[] = {{"human", "user"},
                                                                 {"user", "user"},
                                                                 {"gpt", "assistant"},
                                                                 {"assistant", "assistant"},
                                                                 {"system", "system"}};
  for (const auto& [from, role] : kRoles) {
    if (from == speaker) return role;
  }
  return nullptr;
}

// {"conversations": [{"from": "human", "value": …}, …]} as {"messages": …}; other members stay.
io::Json messages_of_sharegpt(const Row& row) {
  io::Json converted = row.json();
  const io::Json turns = converted["conversations"];
  converted.erase("conversations");
  if (!turns.is_array() || turns.empty()) {
    row.refuse({"conversations"}, str("\"conversations\" is ", io::describe(&turns),
                                      ", expected an array of at least one message"));
  }
  io::Json& messages = converted["messages"] = io::Json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    std::vector<std::string> path = {"conversations", str(i)};
    if (!turns[i].is_object()) {
      row.refuse(path, str("message ", i + 1, " is ", io::describe(&turns[i]),
                           ", expected an object with \"from\" and \"value\""));
    }
    const std::string& from = row.text(turns[i], path, "from");
    const char* role = role_of(from);
    const std::string& content = row.text(turns[i], path, "value");
    if (role == nullptr) {
      path.emplace_back("from");
      row.refuse(path, str("\"from\" is ", quoted(from), ", expected human, gpt or system"));
    }
    messages.push_back({{"role", role}, {"content", content}});
  }
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

}  // namespace

io::Json parse_json_row(const TextLine& line) {
  check_utf8(line);
  io::JsonLimits limits;
  limits.first_line = line.number;
  io::Json row;
  // parse_json puts a place before its message; here the file is named by the caller.
  try {
    row = io::parse_json(line.text, "", limits);
  } catch (const Error& error) {
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
    return with_context([&] { return str("line ", line.number, ", column 1"); }, encode);
  };
  if (has("messages")) {
    const bool in_parts = check_messages(row);
    return in_row(
        [&] { return encoder.chat(in_parts ? with_joined_parts(row.json()) : row.json()); });
  }
  if (has("conversations")) {
    const io::Json converted = messages_of_sharegpt(row);
    return in_row([&] { return encoder.chat(converted); });
  }
  if (has("instruction") || has("output")) {
    const io::Json converted = messages_of_alpaca(row);
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
