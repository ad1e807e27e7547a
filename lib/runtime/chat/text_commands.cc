#include "lib/runtime/chat/text_commands.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/tool/input.h"
#include "lib/runtime/tool/output.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {
namespace {

std::shared_ptr<const text::Tokenizer> load_named_vocabulary(const RunOptions& options) {
  if (options.tokenizer) return text::load_tokenizer(*options.tokenizer);
  return text::load_tokenizer(options.model ? find_model(*options.model) : builtin_model_path());
}

std::string ids_to_json(const std::vector<int32_t>& ids) {
  std::string out = "[";
  for (const int32_t id : ids) {
    if (out.size() > 1) out += ", ";
    out += str(id);
  }
  return out + "]";
}

// Answers every line of standard input with a line, as soon as no more input is at hand.
void answer_lines(FunctionRef<std::string(const io::Json&)> answer) {
  constexpr size_t kFlushBytes = 1 << 16;
  LineInput input;
  std::string line, out;
  while (input.next(line)) {
    if (is_blank(line)) continue;
    try {
      out += with_context(str("standard input: line ", input.number()),
                          [&] { return answer(io::parse_json(line, "JSON")); });
    } catch (...) {
      write_stdout(out);
      throw;
    }
    out += '\n';
    if (!input.has_line() || out.size() > kFlushBytes) {
      write_stdout(out);
      out.clear();
    }
  }
}

std::vector<int32_t> ids_of(const io::Json& array) {
  if (!array.is_array()) {
    fail(ErrorKind::kMalformed, "expected an array of token ids, found ", io::describe(&array));
  }
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const io::Json& element : array) {
    const bool is_id = element.is_number_unsigned() &&
                       element.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!is_id) {
      fail(ErrorKind::kMalformed, "expected a token id, found ", io::describe(&element));
    }
    ids.push_back(element.get<int32_t>());
  }
  return ids;
}

// Whether an option reads standard input, which is then no part of the prompt.
bool names_standard_input(const RunOptions& options) {
  const auto is_it = [](std::string_view path) {
    return path == "/dev/stdin" || path == "/dev/fd/0";
  };
  for (const auto* file : {&options.json_schema, &options.grammar, &options.chat_template}) {
    if (*file && is_it(**file)) return true;
  }
  return std::ranges::any_of(options.files, is_it);
}

}  // namespace

std::vector<int32_t> parse_ids(std::string_view text, const std::string& place) {
  return with_context(place, [&] { return ids_of(io::parse_json(text, "JSON")); });
}

std::string prompt_text(const RunOptions& options) {
  std::string text = options.prompt.value_or("");
  bool is_line = !options.prompt;  // whether what comes next begins a line
  const auto append = [&](std::string_view more, const std::string& place) {
    if (more.empty()) return;
    if (!is_line) text += '\n';
    is_line = more.ends_with('\n');
    if (is_valid_utf8(more)) {
      text += more;
      return;
    }
    write_stderr(str("note: ", place, " is not UTF-8: what is no character is read as U+FFFD\n"));
    text += to_valid_utf8(more);
  };
  for (const std::string& file : options.files) {
    const std::string content = io::read_file(file, limits::kPromptBytes);
    std::string_view more = content;
    if (more.starts_with("\xEF\xBB\xBF")) more.remove_prefix(3);
    append(more, io::place_of(file));
  }
  if (!names_standard_input(options)) append(read_standard_input(), "standard input");
  return text;
}

void run_tokenize(const RunOptions& options) {
  const auto tokenizer = load_named_vocabulary(options);
  text::EncodeOptions encode;
  encode.add_special = options.special == "true";
  if (!options.jsonl) {
    if (!options.prompt && options.files.empty() && is_terminal(0)) {
      fail(ErrorKind::kUsage, "--tokenize needs --prompt, --file or text on standard input");
    }
    write_stdout(ids_to_json(tokenizer->encode(prompt_text(options), encode)) + "\n");
    return;
  }
  answer_lines([&](const io::Json& value) {
    if (!value.is_string()) {
      fail(ErrorKind::kMalformed, "expected a JSON string, found ", io::describe(&value));
    }
    return ids_to_json(tokenizer->encode(value.get_ref<const std::string&>(), encode));
  });
}

void run_detokenize(const RunOptions& options) {
  const auto tokenizer = load_named_vocabulary(options);
  const auto known = [&](std::vector<int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < tokenizer->vocab_size()) continue;
      fail(ErrorKind::kMalformed, "token id ", id, " is not in the vocabulary of ",
           tokenizer->vocab_size());
    }
    return ids;
  };
  const bool skip_special = options.special == "false";
  if (!options.jsonl) {
    const std::string ids = options.ids ? *options.ids : read_standard_input();
    const std::string place = options.ids ? "ids" : "standard input";
    write_stdout(tokenizer->decode(known(parse_ids(ids, place)), skip_special));
    return;
  }
  answer_lines([&](const io::Json& value) {
    const std::string text = tokenizer->decode(known(ids_of(value)), skip_special);
    return io::Json(to_valid_utf8(text)).dump();
  });
}

void run_render(const RunOptions& options) {
  io::Json variables = io::read_json(*options.render_context);
  if (!variables.is_object()) {
    fail(ErrorKind::kMalformed, *options.render_context,
         ": expected an object of variables, found ", io::describe(&variables));
  }
  // transformers gives these to every template, as none if there are none.
  for (const char* name : {"tools", "documents"}) {
    if (!io::find(variables, name)) variables[name] = nullptr;
  }
  const auto chat_template = text::ChatTemplate::parse(
      io::read_file(*options.render, limits::kTemplateBytes), *options.render);
  text::ChatTemplate::Options render;
  if (options.now) {
    render.now = with_context("now", [&] { return text::CivilTime::parse(*options.now); });
  }
  write_stdout(chat_template.render(variables, render));
}

}  // namespace lumen::runtime
