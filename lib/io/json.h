// JSON: a strict reader for configs, tokenizers and indexes, and getters that explain themselves.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/limits.h"

// Instantiated in json.cc alone: the compiler would otherwise spend seconds on it in every file.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace lumen::io {

// A JSON value whose objects keep the order of the file, as chat templates need. An object is a
// vector of pairs: iterate over large ones (a vocabulary), lookup by key is linear.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  uint64_t bytes = limits::kJsonBytes;
  int depth = limits::kJsonDepth;  // nested arrays and objects
  int64_t first_line = 1;          // what messages call the text's first line
  // Infinity, -Infinity and NaN, which JSON has not, are read as transformers writes them since its
  // fifth version, {"__float__": "Infinity"}.
  bool special_numbers = false;
};

// Parses `text`, strictly RFC 8259: UTF-8, no comments, no trailing commas, nothing after the
// value, and no duplicate key in an object. Integers outside the 64-bit range become doubles.
// Throws Error(kMalformed) "PLACE: line 3, column 7: …"; `place` is the file's name.
Json parse_json(std::string_view text, const std::string& place, const JsonLimits& limits = {});

// parse_json of a file; a leading UTF-8 byte-order mark is skipped. Throws also as read_file.
Json read_json(const std::string& path, const JsonLimits& limits = {});

// read_json of a model's config.json, in which Python may have written special_numbers.
Json read_config(const std::string& path);

// The special number that such an object is of, or null if `value` is none.
const Json* special_number(const Json& value);

// Byte offset in `text`, which is valid JSON, of the value that `path` leads to: keys of objects
// and decimal indices of arrays. Where a step is missing, of the object or array that lacks it.
size_t json_position(std::string_view text, std::span<const std::string> path);

// The member `key` of `object`, or null if `object` is no object or has no such member. A member
// whose value is JSON null is found.
const Json* find(const Json& object, std::string_view key);
// The same, but JSON null counts as absent.
const Json* find_value(const Json& object, std::string_view key);

// Typed members. They throw Error(kMalformed) naming the key, what was found and what is expected,
// when the member is absent or null (unless a fallback is given), has another type, or is out of
// [lo, hi]. A double with an integral value is accepted as integer, an integer as number.
int64_t get_int(const Json& object, std::string_view key, int64_t lo, int64_t hi);
int64_t get_int(const Json& object, std::string_view key, int64_t lo, int64_t hi, int64_t fallback);
double get_number(const Json& object, std::string_view key, double lo, double hi);
double get_number(const Json& object, std::string_view key, double lo, double hi, double fallback);
bool get_bool(const Json& object, std::string_view key);
bool get_bool(const Json& object, std::string_view key, bool fallback);
std::string get_string(const Json& object, std::string_view key);
std::string get_string(const Json& object, std::string_view key, std::string_view fallback);

// "the string 'abc'", "the number 1.5", "an array of 3", "nothing": for error messages.
std::string describe(const Json* value);

}  // namespace lumen::io
