// What every test includes: Catch2 2.13 or 3, and the test data beside the project.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <string>
#include <string_view>

#include "lib/base/error.h"

namespace lumen::testing {

// Absolute path of a file of the source tree ("testdata/…").
std::string source_path(const std::string& relative);

// Absolute path of a file of the shared data beside the checkout (LUMEN_SHARED, by default
// ../shared/data), or "" after noting that the current test is skipped for want of it.
std::string shared_data(const std::string& relative);

// Notes that the running test is skipped; the summary lists and counts it.
void skip(const std::string& why);

// A fresh empty directory, removed when the test program ends.
std::string temporary_directory();

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// `text`, `times` times.
inline std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// The message with which body() is refused, which must be of this kind; "accepted" if it is not.
template <typename Body>
std::string refusal(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "accepted";
}

}  // namespace lumen::testing

// Declares `variable` as the path of a shared file, or leaves the test as skipped.
#define LUMEN_SHARED_DATA(variable, relative)                           \
  const std::string variable = ::lumen::testing::shared_data(relative); \
  if (variable.empty()) return
