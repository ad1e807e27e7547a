// The keys of a recipe, each declared once: reading, checking, printing and the schema walk them.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {

enum class KeyType { kInteger, kNumber, kBoolean, kText, kDuration };

// What a value, or each element of a list, may be.
struct KeyLimits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                 // min itself is not allowed
  std::vector<std::string> choices = {};  // of texts; empty: any
  size_t min_length = 0;                  // of texts, in bytes
  size_t min_items = 0;                   // of lists
  size_t max_items = std::numeric_limits<size_t>::max();
};

// One key, bound to the member of a Recipe that holds its value.
struct RecipeKey {
  std::string name, help;
  KeyType type;
  bool list = false;      // of `type`; one value counts as a list of one
  bool optional = false;  // may stay without a value
  KeyLimits limits;
  // Checks and stores. Throws Error(kMalformed) "expected a number from 0 to 1, found …".
  std::function<void(const io::Json&)> set;
  // The present value; null: none, an empty list too.
  std::function<io::Json()> get;
  // Back to the value it had when it was bound.
  std::function<void()> clear;
  std::vector<std::string> used_by;  // values of the table's selector that use it; empty: all
  std::string partner;               // a key of the table without which it means nothing; "": none
  bool may_change_flag = false;      // a checkpoint stays usable when it changes

  RecipeKey& only_for(std::vector<std::string> values);
  RecipeKey& only_with(std::string key);
  RecipeKey& may_change();
};

// One table; an array of tables is one for each of its elements.
struct RecipeTable {
  std::string name;     // "train"; "" at the top; "data.train[0]"
  std::string pointer;  // "/train"; ""; "/data/train/0"
  std::string help;
  bool repeated = false;
  std::vector<RecipeKey> keys;
  std::string selector;  // the key that decides which others apply: "type"; "" if there is none
  // Its value; none as long as unknown; several while it may become one of them.
  std::function<std::vector<std::string>()> selected;

  // Whether `key` goes with the value of the selector. (With data whose format is not known yet all
  // do.)
  bool is_selected(const RecipeKey& key) const;
  // Whether `key` has what it means nothing without: a partner that is neither absent nor off.
  bool has_partner(const RecipeKey& key) const;
  // Whether `key` does anything: both of the above.
  bool applies(const RecipeKey& key) const { return is_selected(key) && has_partner(key); }

  // "train.steps", at the top "steps", as --set and messages have it.
  std::string path_of(const std::string& key) const;
  // "[train]", "[[data.train]]", as files have it.
  std::string header() const;
};

// All tables in the order of the file, bound to `recipe`, which must outlive them and whose lists
// of tables must not change.
std::vector<RecipeTable> recipe_tables(Recipe& recipe);

// The key at "model.layers" or "data.train[0].path"; null if there is none.
const RecipeKey* find_key(const std::vector<RecipeTable>& tables, const std::string& path);

// "a whole number from 1 to 8": what `key` takes, for messages.
std::string expected(const RecipeKey& key);

}  // namespace lumen::runtime
