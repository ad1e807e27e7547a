// The model that comes with Lumen.
#pragma once

#include <string>
#include <string_view>

#include "lib/io/model_files.h"

namespace lumen::runtime {

// The path of lumen-tiny.gguf: beside the executable (as built), in ../share/lumen from there, or
// where it was installed. Throws Error(kMissing) listing where it looked.
std::string builtin_model_path();

// Its name in recipes, in adapters that were trained on it, and wherever a model is named.
inline constexpr std::string_view kBuiltinModel = "builtin:lumen-tiny";

// The path of the model `name`: the built-in one, or what io::find_model finds, which throws Error.
std::string find_model(const std::string& name);

// What the makers of a model want said when it is used (GGUF key "lumen.notice"), made safe to
// print; "" if nothing.
std::string model_notice(const io::ModelFiles& files);

}  // namespace lumen::runtime
