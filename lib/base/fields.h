// Options declared once: a list of fields is the flags of a tool, the keys of a recipe, the names
// of chat's `/set` and what is shown of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

// One option: its name, what a value is, and how to write and read the variable behind it. Refers
// to that variable, which must outlive it.
struct Field {
  std::string name;   // as users write it, without dashes: "top-k"
  std::string value;  // what it takes, for help: "N", "FILE"; "" for a switch
  std::string help;   // one line, the default in parentheses, no full stop
  // Parses and stores; throws Error(kUsage) naming the field, the value and what is allowed.
  std::function<void(std::string_view)> set;
  // The present value as a user would write it; "" if none was given.
  std::function<std::string()> get;
  bool repeatable = false;
};

// A number in [min, max]; the whole text must be a number in C notation ("1e9" is no integer).
Field number_field(std::string name, std::string help, std::optional<int64_t>& variable,
                   int64_t min, int64_t max);
Field number_field(std::string name, std::string help, std::optional<double>& variable, double min,
                   double max);

// Text in UTF-8; `value` says what it means ("TEXT").
Field text_field(std::string name, std::string value, std::string help,
                 std::optional<std::string>& variable);

// The name of a file, a directory or a model: any bytes, but not none.
Field path_field(std::string name, std::string value, std::string help,
                 std::optional<std::string>& variable);

// Any number of texts, in the order given, of any bytes: they may name files.
Field list_field(std::string name, std::string value, std::string help,
                 std::vector<std::string>& variable);

// Throws Error(kUsage) "NAME: byte N is not UTF-8, …" for a text that text_field would refuse.
void require_utf8(std::string_view text, const std::string& name);

// One of `choices`, written in any case.
Field choice_field(std::string name, std::string help, std::string& variable,
                   std::vector<std::string> choices);

// Off unless named.
Field switch_field(std::string name, std::string help, bool& variable);

// The field called `name`, or Error(kUsage) with the nearest name.
const Field& find_field(const std::vector<Field>& fields, std::string_view name);

}  // namespace lumen
