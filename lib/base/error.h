// Errors: one exception type that says what was wrong, where, and what to do.
//
// Library code throws `Error`; context ("model.gguf", "tensor 'x'") is added while unwinding with
// `at`; what nobody on the way can go on from ends in runtime's `run_tool`, which prints a single
// line and exits with `exit_code`. Broken invariants of our own code are not errors: see check.h.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "lib/base/strings.h"

namespace lumen {

// Why a tool stops. The numeric value is the process exit code (documented in the man pages);
// 0 is success, 128 + N the end by signal N: 129 SIGHUP, 130 SIGINT, 141 SIGPIPE, 143 SIGTERM.
enum class ErrorKind : int {
  kProgramFailed = 1,  // another program that the tool ran failed
  kUsage = 2,          // bad command line or option value
  kCheckFailed = 3,    // a requested check failed: regression, verification mismatch
  kInconclusive = 4,   // a check could not decide
  kMalformed = 65,     // input malformed, truncated, hostile or over a limit
  kMissing = 66,       // input missing, unreadable or not a regular file
  kUnsupported = 69,   // a feature, format or architecture this build does not have
  kInternal = 70,      // a bug in Lumen
  kResource = 71,      // out of memory or another operating-system resource
  kCannotCreate = 73,  // output cannot be created or would overwrite something
  kIo = 74,            // read or write failed (disk full, file changed while in use)
  kRetry = 75,         // try again later: lock held
  kDiverged = 76,      // training diverged: loss or weights are not finite
  kMismatch = 78,      // two inputs do not belong together (recipe and checkpoint, …)
};

// An error with its context. `what()` is one line without a trailing newline:
// "context: context: message". Copyable; not thread-safe to modify.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), text_(std::move(message)) {}

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

  // Prefixes where the error happened: a file, a tensor, "line 3:7". Outermost is added last.
  Error& at(const std::string& place) {
    text_ = place + ": " + text_;
    return *this;
  }

 private:
  ErrorKind kind_;
  std::string text_;
};

// Throws an Error whose message is the concatenation of `parts` (see str() in strings.h).
// Text that comes from a file must go through quoted() first.
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, str(parts...));
}

// Runs `body`; an Error escaping from it gets `place` prefixed: a string, or a function that makes
// it, which is called only then.
template <typename Place, typename Body>
decltype(auto) with_context(const Place& place, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    if constexpr (std::is_invocable_v<const Place&>) {
      error.at(place());
    } else {
      error.at(place);
    }
    throw;
  }
}

}  // namespace lumen
