#include "lib/text/chat_template.h"

#include <utility>

#include "lib/base/check.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/lexer.h"
#include "lib/text/jinja/parser.h"

namespace lumen::text {

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Template> parsed)
    : parsed_(std::move(parsed)) {}

ChatTemplate ChatTemplate::parse(std::string source, std::string name, const Syntax& syntax) {
  if (source.size() > limits::kTemplateBytes) {
    fail(ErrorKind::kMalformed, name, ": the template has ", source.size(), " bytes, more than ",
         limits::kTemplateBytes);
  }
  if (!is_valid_utf8(source)) {
    fail(ErrorKind::kMalformed, name, ": the template is not valid UTF-8");
  }
  try {
    return ChatTemplate(std::make_shared<const jinja::Template>(
        jinja::parse_template(name, std::move(source), syntax)));
  } catch (const jinja::SyntaxError& error) {
    fail(ErrorKind::kMalformed, name, ":", error.line, ": ", error.message);
  }
}

std::string ChatTemplate::render(const Json& variables, const Options& options) const {
  LUMEN_CHECK(variables.is_object());
  return jinja::Interpreter(*parsed_, variables, options).render();
}

std::string ChatTemplate::render_beginnings(const Json& variables, const Options& options,
                                            const std::string& list,
                                            RenderedBeginnings& beginnings) const {
  LUMEN_CHECK(variables.is_object());
  return jinja::Interpreter(*parsed_, variables, options).render_beginnings(list, beginnings);
}

const std::string& ChatTemplate::source() const {
  return parsed_->source;
}
const std::string& ChatTemplate::name() const {
  return parsed_->name;
}

Json chat_variables(ChatInput input) {
  Json out = Json::object();
  out["messages"] = std::move(input.messages);
  out["tools"] = std::move(input.tools);
  out["documents"] = std::move(input.documents);
  out["add_generation_prompt"] = input.add_generation_prompt;
  if (input.bos_token) out["bos_token"] = *input.bos_token;
  if (input.eos_token) out["eos_token"] = *input.eos_token;
  out.update(input.extra);
  return out;
}

std::string render_chat(const ChatTemplate& chat_template, ChatInput input,
                        const ChatTemplate::Options& options, RenderedBeginnings* beginnings) {
  const Json variables = chat_variables(std::move(input));
  if (beginnings == nullptr) return chat_template.render(variables, options);
  return chat_template.render_beginnings(variables, options, "messages", *beginnings);
}

std::string join_parts(const Json& parts, RefusePart refuse) {
  constexpr const char* kExpected = ", expected {\"type\": \"text\", \"text\": …}";
  std::vector<std::string> texts;
  for (const Json& part : parts) {
    std::vector<std::string> path = {str(texts.size())};
    const std::string number = str("part ", texts.size() + 1, " of the content");
    const Json* type = io::find(part, "type");
    if (type == nullptr || !type->is_string()) {
      refuse(ErrorKind::kMalformed, path, str(number, " is ", io::describe(&part), kExpected));
    }
    if (*type != "text") {
      const auto& name = type->get_ref<const std::string&>();
      refuse(ErrorKind::kUnsupported, path,
             str(number, " is of type ", quoted(name, 40), kExpected, ": only text is read"));
    }
    const Json* text = io::find(part, "text");
    if (text == nullptr || !text->is_string()) {
      path.emplace_back("text");
      refuse(ErrorKind::kMalformed, path,
             str("\"text\" is ", io::describe(text), ", expected a string"));
    }
    texts.push_back(text->get<std::string>());
  }
  return join(texts, "\n");
}

void parse_arguments(Json& tool_calls, RefusePart refuse) {
  if (!tool_calls.is_array()) {
    refuse(ErrorKind::kMalformed, {},
           str("\"tool_calls\" is ", io::describe(&tool_calls), ", expected an array"));
  }
  for (size_t i = 0; i < tool_calls.size(); ++i) {
    std::vector<std::string> path = {str(i)};
    Json* place = &tool_calls[i];
    if (!place->is_object()) {
      refuse(ErrorKind::kMalformed, path,
             str("call ", i + 1, " of \"tool_calls\" is ", io::describe(place),
                 ", expected an object"));
    }
    if (const auto function = place->find("function");
        function != place->end() && function->is_object()) {
      path.emplace_back("function");
      place = &*function;
    }
    const auto arguments = place->find("arguments");
    if (arguments == place->end() || !arguments->is_string()) continue;
    path.emplace_back("arguments");
    try {
      *arguments = io::parse_json(arguments->get<std::string>(), "the arguments of a tool call");
    } catch (const Error& error) {
      refuse(error.kind(), path, error.what());
    }
  }
}

std::optional<std::string> select_chat_template(const Json& field, bool with_tools) {
  if (field.is_null()) return std::nullopt;
  if (field.is_string()) return field.get<std::string>();
  if (!field.is_array()) {
    fail(ErrorKind::kMalformed,
         "chat_template: expected a string or a list of named templates, "
         "found ",
         field.type_name());
  }
  const Json* chosen = nullptr;
  for (const Json& entry : field) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      fail(ErrorKind::kMalformed,
           "chat_template: an entry of the list is not {\"name\": …, \"template\": …}");
    }
    const std::string& name = entry["name"].get_ref<const std::string&>();
    if (name == "tool_use" && with_tools) return entry["template"].get<std::string>();
    if (name == "default") chosen = &entry["template"];
  }
  if (!chosen) {
    fail(ErrorKind::kMalformed, "chat_template: none of the ", field.size(),
         " named templates is called \"default\"");
  }
  return chosen->get<std::string>();
}

}  // namespace lumen::text
