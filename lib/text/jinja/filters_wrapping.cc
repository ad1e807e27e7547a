// Filters that break and indent lines.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

const Value& require_string(const Value& subject, std::string_view filter) {
  if (subject.is_undefined()) refuse_undefined(subject);
  if (!subject.is_string()) refuse(filter, " needs a string, not ", type_name(subject));
  return subject;
}

Value indent(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [width, first, blank] = parameters("indent", arguments, {"width", "first", "blank"});
  require_string(subject, "indent");
  Heap& heap = in.heap();
  std::string margin;
  if (width.given() && width.is_string()) {
    margin = std::string(width.view());
  } else {
    const int64_t columns = std::max<int64_t>(width.given() ? to_index(width, "width") : 4, 0);
    heap.check(static_cast<size_t>(columns));
    margin.assign(static_cast<size_t>(columns), ' ');
  }
  const bool markup = subject.string().markup();
  if (markup) margin = escape_html(margin);
  const bool blank_too = blank.given() && truth(blank);
  // jinja2 appends a line end before it splits, so that a last empty line is kept.
  const std::string text = std::string(subject.view()) + "\n";
  TextBuilder out(heap);
  if (first.given() && truth(first)) out.append(margin);
  bool is_first = true;
  for (std::string_view line : split_lines(heap, text, false)) {
    if (!is_first) {
      out.append('\n');
      if (blank_too || !line.empty()) out.append(margin);
    }
    is_first = false;
    out.append(line);
  }
  return Value::object(heap.make<String>(out.take(), markup));
}

Value truncate(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [limit, kill_words, end, leeway] =
      parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  Heap& heap = in.heap();
  const int64_t size = limit.given() ? to_index(limit, "length") : 255;
  const Value tail = end.given() ? as_text(heap, end) : in.text("...");
  const int64_t slack = leeway.given() && !leeway.is_none() ? to_index(leeway, "leeway") : 5;
  const int64_t tail_size = tail.string().length();
  if (size < tail_size) refuse("truncate: expected length >= ", tail_size, ", got ", size);
  if (slack < 0) refuse("truncate: expected leeway >= 0, got ", slack);
  const std::optional<int64_t> actual = length(subject);
  if (!actual) refuse("object of type '", type_name(subject), "' has no len()");
  if (*actual <= (size > INT64_MAX - slack ? INT64_MAX : size + slack)) {
    return subject;
  }
  std::string_view kept = require_string(subject, "truncate").view();
  kept = kept.substr(0, offset_of(kept, size - tail_size));
  if (!kill_words.given() || !truth(kill_words)) kept = kept.substr(0, kept.rfind(' '));
  const Value head = Value::object(heap.make<String>(std::string(kept), subject.string().markup()));
  return concatenate(heap, head, tail);
}

// Python's textwrap for one line, without expanding tabs or replacing white space.
class Wrapper {
 public:
  Wrapper(Heap& heap, int64_t width, bool break_long, bool break_hyphens)
      : heap_(heap), width_(width), break_long_(break_long), break_hyphens_(break_hyphens) {}

  std::vector<std::string> wrap(std::string_view line) {
    chunks(line);
    std::vector<std::string> lines;
    size_t next = 0;
    while (next < chunks_.size()) {
      if (blank(chunks_[next]) && !lines.empty()) ++next;
      Pieces row;
      int64_t used = 0;
      while (next < chunks_.size() && used + size(chunks_[next]) <= width_) {
        used += size(chunks_[next]);
        row.push_back(chunks_[next++]);
      }
      if (next < chunks_.size() && size(chunks_[next]) > width_) {
        take_part(row, used, next);
      }
      if (!row.empty() && blank(row.back())) row.pop_back();
      if (row.empty()) continue;
      std::string text;
      for (std::string_view chunk : row) text += chunk;
      heap_.step();
      heap_.check(text.size());
      lines.push_back(std::move(text));
    }
    return lines;
  }

 private:
  static bool blank(std::string_view chunk) { return strip_left(chunk).empty(); }
  int64_t size(std::string_view chunk) const {
    heap_.step();
    heap_.touch(chunk.size());
    return count_code_points(chunk);
  }

  // A chunk longer than a line: a part of it, or all of it on a line of its own.
  void take_part(Pieces& row, int64_t used, size_t& next) {
    const int64_t space = width_ < 1 ? 1 : width_ - used;
    std::string_view& chunk = chunks_[next];
    if (break_long_) {
      int64_t end = space;
      if (break_hyphens_ && size(chunk) > space) {
        const size_t hyphen = chunk.substr(0, offset_of(chunk, space)).rfind('-');
        if (hyphen != std::string_view::npos && hyphen > 0 &&
            chunk.substr(0, hyphen).find_first_not_of('-') != std::string_view::npos) {
          end = count_code_points(chunk.substr(0, hyphen)) + 1;
        }
      }
      const size_t bytes = offset_of(chunk, end);
      row.push_back(chunk.substr(0, bytes));
      chunk.remove_prefix(bytes);
      if (chunk.empty()) ++next;
    } else if (row.empty()) {
      row.push_back(chunk);
      ++next;
    }
  }

  // Runs of ASCII white space and words, the latter split after hyphens between letters.
  void chunks(std::string_view line) {
    chunks_.clear();
    const auto space = [&](size_t at) {
      return std::string_view("\t\n\v\f\r ").find(line[at]) != std::string_view::npos;
    };
    for (size_t pos = 0; pos < line.size();) {
      const size_t begin = pos;
      const bool blanks = space(pos);
      while (pos < line.size() && space(pos) == blanks) ++pos;
      if (blanks || !break_hyphens_) {
        chunks_.push_back(line.substr(begin, pos - begin));
      } else {
        word(line.substr(begin, pos - begin));
      }
      heap_.step();
    }
  }

  static bool letter(std::string_view word, size_t at) {
    if (at >= word.size()) return false;
    size_t next = at;
    const uint32_t c = next_code_point(word, next);
    return c == '_' || is_alphabetic(c);
  }

  static size_t back(std::string_view word, size_t at) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(word[at]) & 0xC0) == 0x80);
    return at;
  }

  // Breaks "well-known" after the hyphen: two letters before it and two after.
  void word(std::string_view word) {
    size_t begin = 0;
    for (size_t pos = 1; pos + 1 < word.size(); ++pos) {
      if (word[pos] != '-') continue;
      const size_t one = back(word, pos);
      if (!letter(word, one) || one == 0 || !letter(word, back(word, one))) continue;
      const size_t after = pos + 1;
      if (!letter(word, after)) continue;
      const size_t second = after + offset_of(word.substr(after), 1);
      if (!letter(word, second) && !(second < word.size() && word[second] == '-')) continue;
      chunks_.push_back(word.substr(begin, after - begin));
      begin = after;
    }
    chunks_.push_back(word.substr(begin));
  }

  Heap& heap_;
  int64_t width_;
  bool break_long_, break_hyphens_;
  Pieces chunks_;
};

Value word_wrap(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [width, break_long, separator, break_hyphens] = parameters(
      "wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  require_string(subject, "wordwrap");
  Heap& heap = in.heap();
  const int64_t columns = width.given() ? to_index(width, "width") : 79;
  if (columns <= 0) refuse("wordwrap: invalid width ", columns, " (must be > 0)");
  const std::string between =
      separator.given() && !separator.is_none() ? to_str(heap, separator) : "\n";
  Wrapper wrapper(heap, columns, !break_long.given() || truth(break_long),
                  !break_hyphens.given() || truth(break_hyphens));
  TextBuilder out(heap);
  bool first_paragraph = true;
  for (std::string_view line : split_lines(heap, subject.view(), false)) {
    if (!first_paragraph) out.append(between);
    first_paragraph = false;
    bool first_line = true;
    for (const std::string& wrapped : wrapper.wrap(line)) {
      if (!first_line) out.append(between);
      first_line = false;
      out.append(wrapped);
    }
  }
  return Value::text(heap, out.take());
}

constexpr Builtin kWrappingFilters[] = {
    {"indent", indent},
    {"truncate", truncate},
    {"wordwrap", word_wrap},
};

}  // namespace

std::span<const Builtin> wrapping_filters() {
  return kWrappingFilters;
}

}  // namespace lumen::text::jinja
