// Chat templates: the Jinja subset that models ship with, rendered as Hugging Face transformers'
// apply_chat_template does.
//
// A template is untrusted input: it sees only the values given to `render`, cannot reach files or
// the environment, and is bounded by limits::kTemplate* (source, nesting, steps, memory, output).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/function_ref.h"
#include "lib/io/json.h"

namespace lumen::text {

// Key order is part of the meaning: `tojson` and loops over a mapping keep it.
using io::Json;

// A wall-clock reading without a time zone; what `strftime_now` formats.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;

  // Reads "2025-07-10T12:00:00" (or a space for the T; the time may be missing: midnight). Throws
  // Error(kUsage) if `text` is no such date.
  static CivilTime parse(std::string_view text);

  // The local time.
  static CivilTime now();
};

// Bytes [begin, end) of a rendered text.
struct ByteRange {
  size_t begin;
  size_t end;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// What a template makes of the first items of a list: the first `shared` bytes of what it makes of
// the whole list, and `rest`.
struct RenderedBeginning {
  size_t shared;
  std::string rest;
};
// By the number of items, from none to all. nullopt where that takes a rendering of its own to
// tell.
using RenderedBeginnings = std::vector<std::optional<RenderedBeginning>>;

namespace jinja {
struct Template;  // the parsed form; lib/text/jinja/
}

// A parsed template. Cheap to copy; const operations may be used from several threads at once.
class ChatTemplate {
 public:
  // The two whitespace switches of the language. transformers has both on.
  struct Syntax {
    bool trim_blocks = true;    // the newline after a `%}` is dropped
    bool lstrip_blocks = true;  // blanks between the line's beginning and a `{%` are dropped
  };

  struct Options {
    std::optional<CivilTime> now;  // fixes the clock of strftime_now; absent: local time
    // If set, receives the ranges of the output that `{% generation %}` blocks produced, in order:
    // what an assistant said, as opposed to what it was told.
    std::vector<ByteRange>* generation = nullptr;
  };

  // Parses `source`; `name` is the file or key it came from, used in messages. Throws
  // Error(kMalformed) "NAME:LINE: …" for a syntax error, an unknown filter or test, a statement
  // that needs other files (include, import, extends), or an exceeded limit.
  static ChatTemplate parse(std::string source, std::string name, const Syntax& syntax);
  static ChatTemplate parse(std::string source, std::string name) {
    return parse(std::move(source), std::move(name), Syntax{});
  }

  // Renders with the members of the object `variables`; a variable that is not a member is
  // undefined, which differs from null (Jinja's none). Throws Error(kMalformed) "NAME:LINE: …" for
  // what jinja2 refuses, for the template's own raise_exception, or for an exceeded limit.
  // Deterministic except for the clock.
  std::string render(const Json& variables, const Options& options) const;
  std::string render(const Json& variables) const { return render(variables, Options{}); }

  // As render(variables, options), and what that would give if the variable `list`, an array, had
  // only its first items, in about twice the time for all of them. Known are beginnings up to
  // which the template does not look ahead: most templates only ask of a message whether it is the
  // last, but some, for instance, seek the last message of the user first.
  std::string render_beginnings(const Json& variables, const Options& options,
                                const std::string& list, RenderedBeginnings& beginnings) const;

  // What was parsed, for display.
  const std::string& source() const;
  const std::string& name() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> parsed);
  std::shared_ptr<const jinja::Template> parsed_;
};

// What apply_chat_template hands to a template.
struct ChatInput {
  Json messages = Json::array();  // objects with "role", "content", …
  Json tools = nullptr;           // array of function schemas; null when there are none
  Json documents = nullptr;       // array for retrieval; null when there are none
  bool add_generation_prompt = true;
  std::optional<std::string> bos_token;  // absent: undefined in the template
  std::optional<std::string> eos_token;
  Json extra = Json::object();  // further variables (enable_thinking, …); win over the tokens
};

// The variables of `input` as apply_chat_template names them.
Json chat_variables(ChatInput input);

// Renders `input` with `chat_template`; throws as ChatTemplate::render. `beginnings`, unless null,
// receives those of the messages (ChatTemplate::render_beginnings).
std::string render_chat(const ChatTemplate& chat_template, ChatInput input,
                        const ChatTemplate::Options& options,
                        RenderedBeginnings* beginnings = nullptr);

// The texts of a content that is a list of parts, as OpenAI's API has it, joined line by line.
// `refuse` throws: it is called with the place of a part that is no text, a path below the content
// ("1", "text"), and what is wrong with it; kUnsupported for parts of other types, else kMalformed.
using RefusePart =
    FunctionRef<void(ErrorKind kind, std::span<const std::string> path, std::string_view what)>;
std::string join_parts(const Json& parts, RefusePart refuse);

// The calls of a message's "tool_calls" with their arguments as objects: OpenAI's are JSON as a
// text, but templates expect the objects themselves, as transformers' documentation has it. The
// path that `refuse` gets is below "tool_calls" ("0", "function", "arguments").
void parse_arguments(Json& tool_calls, RefusePart refuse);

// The template text in the value of tokenizer_config.json's "chat_template": a string, or a list of
// {"name", "template"} from which "tool_use" is taken when `with_tools` and present, else
// "default". nullopt when `field` is null. Throws Error(kMalformed) when it is anything else or has
// no default.
std::optional<std::string> select_chat_template(const Json& field, bool with_tools);

}  // namespace lumen::text
