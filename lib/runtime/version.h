// What this build is.
#pragma once

#include <string>

#include "lib/io/json.h"

namespace lumen::runtime {

// "lumen-run 0.1.0 (1fde085)" and a newline.
std::string version_line(const std::string& tool);

// The same with SIMD targets, compiler and build type, as one JSON object and a newline.
std::string version_json(const std::string& tool);

// The build's part of it: "version", "commit", "compiler", "build_type", "simd".
io::Json build_description();

// The limits of lib/base/limits.h, one "name value" a line.
std::string limits_text();

// The same as one JSON object, in "limits", and a newline.
std::string limits_json(const std::string& tool);

// Directory where `meson install` puts data files.
std::string installed_data_directory();

}  // namespace lumen::runtime
