// Where recipes are, and the files they name.
#include <cstdlib>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/source.h"
#include "lib/io/hf_cache.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/training/bundled_recipes.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {
namespace {

namespace fs = std::filesystem;

// Also if that cannot be told, of which the reader says why.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

// "r.toml:2:8: model.path", "--set model.path": where and what a recipe's key is.
std::string place_of(const Recipe& recipe, const std::string& key) {
  const auto given = recipe.given.find(key);
  if (given == recipe.given.end()) return key;
  return str(given->second.text, given->second.kind == ErrorKind::kUsage ? " " : ": ", key);
}

// The part of a pattern that must be there whatever it matches.
std::string fixed_part(const std::string& path) {
  const size_t wildcard = path.find_first_of("*?");
  if (wildcard == path.npos) return path;
  const size_t slash = path.rfind('/', wildcard);
  return slash == path.npos ? "" : path.substr(0, slash + 1);
}

// An empty path would be the recipe's directory.
void check_given(const Recipe& recipe, const std::string& key, const std::string& path) {
  if (path.empty()) fail(ErrorKind::kMissing, place_of(recipe, key), ": is empty, expected a path");
}

}  // namespace

std::string_view BundledRecipe::purpose() const {
  std::string_view line = text.substr(0, text.find('\n'));
  line.remove_prefix(std::min(line.size(), line.find_first_not_of("# ")));
  return line.substr(0, line.find(". "));
}

RecipeText find_recipe(const std::string& name) {
  if (const std::string inside = name + "/recipe.toml"; io::is_regular_file(inside)) {
    fail(ErrorKind::kUsage, quoted(name), " is the directory of a run; its recipe is ",
         quoted(inside));
  }
  if (io::is_regular_file(name) || name.ends_with(".toml") || name.find('/') != name.npos) {
    const size_t slash = name.find_last_of('/');
    const bool is_here = slash == name.npos || io::names_descriptor(name);
    return {name, is_here ? "." : name.substr(0, slash + 1),
            io::read_file(name, limits::kTomlBytes)};
  }
  std::vector<std::string> names;
  for (const BundledRecipe& recipe : bundled_recipes()) {
    if (recipe.name == name) return {name, "", std::string(recipe.text)};
    names.emplace_back(recipe.name);
  }
  const std::string near = nearest(name, names);
  fail(ErrorKind::kMissing, quoted(name), " is neither a file nor a bundled recipe",
       near.empty() ? "; lumen-train --recipes lists them" : "; did you mean " + near + "?");
}

std::string find_file(const Recipe& recipe, const std::string& key, const std::string& path) {
  if (path.starts_with("builtin:")) return path;
  check_given(recipe, key, path);
  const std::string at = place_of(recipe, key), fixed = fixed_part(path);
  if (path.starts_with('/')) {
    if (!is_there(fixed)) fail(ErrorKind::kMissing, at, ": there is no ", quoted(path));
    return path;
  }
  std::vector<std::string> places;
  if (!recipe.directory.empty()) places.push_back(recipe.directory);
  places.emplace_back(".");
  if (const char* data = std::getenv("LUMEN_DATA"); data && *data) places.emplace_back(data);
  for (const std::string& place : places) {
    const fs::path candidate = fs::path(place) / fixed;
    if (is_there(candidate)) return (fs::path(place) / path).lexically_normal().string();
  }
  std::string looked;
  for (const std::string& place : places) {
    const std::string name = io::place_of(fs::path(place + "/").lexically_normal().string());
    if (looked.find(name) == looked.npos) looked += (looked.empty() ? "" : ", ") + name;
  }
  const bool has_data = places.back() != ".";
  fail(ErrorKind::kMissing, at, ": there is no ", quoted(path), " in ", looked,
       has_data ? "" : " (LUMEN_DATA, another folder to look in, is not set)");
}

std::vector<std::string> named_files(const Recipe& recipe) {
  std::vector<std::string> files;
  const auto add = [&](const char* key, const std::optional<std::string>& path) {
    if (path) files.push_back(find_file(recipe, key, *path));
  };
  if (recipe.model.path && *recipe.model.path != kBuiltinModel) {
    files.push_back(find_base_model(recipe));
  }
  add("model.weights", recipe.model.weights);
  add("lora.adapter", recipe.lora.adapter);
  add("tokenizer.path", recipe.tokenizer.path);
  add("tokenizer.chat_template", recipe.tokenizer.chat_template);
  for (const std::string& file : recipe.tokenizer.files) add("tokenizer.files", file);
  return data::expand_paths(files);
}

std::string find_base_model(const Recipe& recipe) {
  const std::string& path = *recipe.model.path;
  check_given(recipe, "model.path", path);
  if (path == kBuiltinModel) return builtin_model_path();
  const std::string beside = base_model_name(recipe);
  if (is_there(beside)) return beside;
  return with_context(place_of(recipe, "model.path"), [&] { return io::find_model(path); });
}

std::string base_model_name(const Recipe& recipe) {
  const fs::path beside = fs::path(recipe.directory) / *recipe.model.path;
  return is_there(beside) ? beside.lexically_normal().string() : *recipe.model.path;
}

}  // namespace lumen::runtime
