#include "lib/runtime/version.h"

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/kernels/simd.h"
#include "lib/runtime/build_config.h"
#include "lib/runtime/git_commit.h"

namespace lumen::runtime {
namespace {

io::Json limits_object() {
  return {
      {"gguf-keys", limits::kGgufKeys},
      {"gguf-tensors", limits::kGgufTensors},
      {"gguf-key-bytes", limits::kGgufKeyBytes},
      {"gguf-string-bytes", limits::kGgufStringBytes},
      {"gguf-array-elements", limits::kGgufArrayElements},
      {"gguf-array-depth", limits::kGgufArrayDepth},
      {"gguf-metadata-bytes", limits::kGgufMetadataBytes},
      {"gguf-alignment", limits::kGgufAlignment},
      {"gguf-tensor-name-bytes", limits::kGgufTensorNameBytes},
      {"gguf-tensor-dims", limits::kGgufTensorDims},
      {"shards", limits::kShards},
      {"safetensors-header-bytes", limits::kSafetensorsHeaderBytes},
      {"tensor-name-bytes", limits::kTensorNameBytes},
      {"tensor-dims", limits::kTensorDims},
      {"npy-header-bytes", limits::kNpyHeaderBytes},
      {"zip-entries", limits::kZipEntries},
      {"pickle-bytes", limits::kPickleBytes},
      {"pickle-values", limits::kPickleValues},
      {"pickle-depth", limits::kPickleDepth},
      {"json-bytes", limits::kJsonBytes},
      {"json-depth", limits::kJsonDepth},
      {"toml-bytes", limits::kTomlBytes},
      {"toml-points", limits::kTomlPoints},
      {"layers", limits::kLayers},
      {"heads", limits::kHeads},
      {"experts", limits::kExperts},
      {"context", limits::kContext},
      {"dim", limits::kDim},
      {"vocab", limits::kVocab},
      {"piece-bytes", limits::kPieceBytes},
      {"merges", limits::kMerges},
      {"tokenizer-bytes", limits::kTokenizerBytes},
      {"pattern-bytes", limits::kPatternBytes},
      {"template-bytes", limits::kTemplateBytes},
      {"template-depth", limits::kTemplateDepth},
      {"template-steps", limits::kTemplateSteps},
      {"template-heap-bytes", limits::kTemplateHeapBytes},
      {"template-output-bytes", limits::kTemplateOutputBytes},
      {"grammar-bytes", limits::kGrammarBytes},
      {"grammar-rules", limits::kGrammarRules},
      {"grammar-depth", limits::kGrammarDepth},
      {"grammar-positions", limits::kGrammarPositions},
      {"grammar-state-ways", limits::kGrammarStateWays},
      {"grammar-cache-bytes", limits::kGrammarCacheBytes},
      {"data-file-bytes", limits::kDataFileBytes},
      {"data-unpacked-bytes", limits::kDataUnpackedBytes},
      {"data-row-bytes", limits::kDataRowBytes},
      {"data-files", limits::kDataFiles},
      {"data-classes", limits::kDataClasses},
      {"data-columns", limits::kDataColumns},
      {"image-bytes", limits::kImageBytes},
      {"image-side", limits::kImageSide},
      {"prompt-bytes", limits::kPromptBytes},
  };
}

}  // namespace

std::string version_line(const std::string& tool) {
  return str(tool, " " LUMEN_VERSION " (" LUMEN_COMMIT ")\n");
}

io::Json build_description() {
  return {{"version", LUMEN_VERSION},
          {"commit", LUMEN_COMMIT},
          {"compiler", LUMEN_COMPILER},
          {"build_type", LUMEN_BUILD_TYPE},
          {"simd",
           {{"chosen", kernels::chosen_simd_target()},
            {"supported", kernels::supported_simd_targets()},
            {"compiled", kernels::compiled_simd_targets()}}}};
}

std::string version_json(const std::string& tool) {
  io::Json object = {{"schema", 1}, {"tool", tool}};
  object.update(build_description());
  return object.dump(2) + "\n";
}

std::string limits_text() {
  const io::Json limits = limits_object();
  std::string out;
  for (const auto& limit : limits.items()) {
    out += str(limit.key(), " ", limit.value().dump(), "\n");
  }
  return out;
}

std::string limits_json(const std::string& tool) {
  return io::Json{{"schema", 1}, {"tool", tool}, {"limits", limits_object()}}.dump(2) + "\n";
}

std::string installed_data_directory() {
  return LUMEN_DATA_DIRECTORY;
}

}  // namespace lumen::runtime
