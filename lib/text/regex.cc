#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/text/regex.h"

#include <pcre2.h>

#include <chrono>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/unicode.h"

namespace lumen::text {
namespace {

constexpr uint32_t kMatchLimit = 20'000'000;  // backtracking steps from one starting point
constexpr uint32_t kHeapKib = 64 << 10;
constexpr size_t kJitStackBytes = 1 << 20;
constexpr size_t kWindow = 256;  // starting points tried between looks at the clock
// Bytes that searches may have walked over between two looks at the clock, and the time allowed:
// far more than any pattern in use needs, so that the clock ends nothing but hangs.
constexpr uint64_t kBytesPerLook = 64 << 20;
constexpr int64_t kBaseNs = 5'000'000'000, kNsPerByte = 500;

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

size_t next_character(std::string_view text, size_t pos) {
  do {
    ++pos;
  } while (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

// `translated` for PCRE2; `pattern` is for messages.
std::shared_ptr<void> compile(const std::string& translated, std::string_view pattern) {
  const std::shared_ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr),
                                                       pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 64);
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), options, &error, &offset, context.get());
  if (code == nullptr) {
    fail(ErrorKind::kUnsupported, "pattern ", quoted(pattern, 200), ": ", message_of(error));
  }
  std::shared_ptr<void> result(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  // Where the system forbids machine code at run time the interpreter does the same, slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return result;
}

}  // namespace

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > limits::kPatternBytes) {
    fail(ErrorKind::kMalformed, "pattern of ", pattern.size(), " bytes, the limit is ",
         limits::kPatternBytes);
  }
  if (!is_valid_utf8(pattern)) fail(ErrorKind::kMalformed, "the pattern is not UTF-8");
  const std::string translated = translate_oniguruma(pattern);
  const std::string young = translate_oniguruma(pattern, true);
  code_ = compile(translated, pattern);
  if (young == translated) return;
  try {
    young_code_ = compile(young, pattern);
  } catch (const Error&) {
    // Too large for PCRE2 with its ranges written out: what PCRE2 knows has to do.
  }
}

RegexMatcher::RegexMatcher(const Regex& regex) : regex_(regex) {
  match_ = std::shared_ptr<void>(pcre2_match_data_create(1, nullptr), [](void* p) {
    pcre2_match_data_free(static_cast<pcre2_match_data*>(p));
  });
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  context_ = std::shared_ptr<void>(
      context, [](void* p) { pcre2_match_context_free(static_cast<pcre2_match_context*>(p)); });
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapKib);
}

void RegexMatcher::spend(size_t text_bytes) {
  unspent_bytes_ += text_bytes + kWindow;
  if (unspent_bytes_ < kBytesPerLook) return;
  unspent_bytes_ = 0;
  if (start_ns_ == 0) start_ns_ = now_ns();
  if (now_ns() - start_ns_ > kBaseNs + static_cast<int64_t>(total_bytes_) * kNsPerByte) {
    fail(ErrorKind::kResource, "pattern ", quoted(regex_.pattern_, 200),
         " takes too long on this text");
  }
}

bool RegexMatcher::search(std::string_view text, size_t pos, size_t& begin, size_t& end) {
  auto* context = static_cast<pcre2_match_context*>(context_.get());
  auto* match = static_cast<pcre2_match_data*>(match_.get());
  while (true) {
    pcre2_set_offset_limit(context, pos + kWindow);
    const int result =
        pcre2_match(static_cast<pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()),
                    text.size(), pos, PCRE2_NO_UTF_CHECK, match, context);
    if (result >= 0) {
      const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
      begin = offsets[0];
      end = offsets[1];
      return true;
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && jit_stack_ == nullptr) {
      pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
      jit_stack_ = std::shared_ptr<void>(
          stack, [](void* p) { pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(p)); });
      pcre2_jit_stack_assign(context, nullptr, stack);
      continue;
    }
    if (result != PCRE2_ERROR_NOMATCH) {
      fail(ErrorKind::kResource, "pattern ", quoted(regex_.pattern_, 200), " on a text of ",
           text.size(), " bytes: ", message_of(result));
    }
    // No match starts in the window.
    pos += kWindow;
    if (pos >= text.size()) return false;
    spend(text.size());
    while ((static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) --pos;
  }
}

void RegexMatcher::find_all(std::string_view text,
                            FunctionRef<void(size_t begin, size_t end)> found) {
  total_bytes_ += text.size();
  const bool young = regex_.young_code_ != nullptr && has_young(text);
  code_ = (young ? regex_.young_code_ : regex_.code_).get();
  size_t pos = 0, previous_end = std::string_view::npos;
  while (pos <= text.size()) {
    spend(text.size());
    size_t begin, end;
    if (!search(text, pos, begin, end)) return;
    if (begin == end && end == previous_end) {
      pos = next_character(text, pos);
      continue;
    }
    found(begin, end);
    pos = previous_end = end;
  }
}

}  // namespace lumen::text
