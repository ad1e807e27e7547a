#include "lib/runtime/version.h"

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/kernels/simd.h"
#include "lib/runtime/build_config.h"
#include "lib/runtime/git_commit.h"

namespace lumen::runtime {

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
  std::string out;
  auto line = [&](std::string_view what, auto value) { out += str(what, " ", value, "\n"); };
  line("gguf-keys", limits::kGgufKeys);
  line("gguf-tensors", limits::kGgufTensors);
  line("gguf-key-bytes", limits::kGgufKeyBytes);
  line("gguf-string-bytes", limits::kGgufStringBytes);
  line("gguf-array-elements", limits::kGgufArrayElements);
  line("gguf-array-depth", limits::kGgufArrayDepth);
  line("gguf-metadata-bytes", limits::kGgufMetadataBytes);
  line("gguf-alignment", limits::kGgufAlignment);
  line("gguf-tensor-name-bytes", limits::kGgufTensorNameBytes);
  line("gguf-tensor-dims", limits::kGgufTensorDims);
  line("shards", limits::kShards);
  line("safetensors-header-bytes", limits::kSafetensorsHeaderBytes);
  line("tensor-name-bytes", limits::kTensorNameBytes);
  line("tensor-dims", limits::kTensorDims);
  line("npy-header-bytes", limits::kNpyHeaderBytes);
  line("zip-entries", limits::kZipEntries);
  line("pickle-bytes", limits::kPickleBytes);
  line("pickle-values", limits::kPickleValues);
  line("pickle-depth", limits::kPickleDepth);
  line("json-bytes", limits::kJsonBytes);
  line("json-depth", limits::kJsonDepth);
  line("toml-bytes", limits::kTomlBytes);
  line("toml-points", limits::kTomlPoints);
  line("layers", limits::kLayers);
  line("heads", limits::kHeads);
  line("experts", limits::kExperts);
  line("context", limits::kContext);
  line("dim", limits::kDim);
  line("vocab", limits::kVocab);
  line("piece-bytes", limits::kPieceBytes);
  line("merges", limits::kMerges);
  line("tokenizer-bytes", limits::kTokenizerBytes);
  line("pattern-bytes", limits::kPatternBytes);
  line("template-bytes", limits::kTemplateBytes);
  line("template-depth", limits::kTemplateDepth);
  line("template-steps", limits::kTemplateSteps);
  line("template-heap-bytes", limits::kTemplateHeapBytes);
  line("template-output-bytes", limits::kTemplateOutputBytes);
  line("grammar-bytes", limits::kGrammarBytes);
  line("grammar-rules", limits::kGrammarRules);
  line("grammar-depth", limits::kGrammarDepth);
  line("grammar-positions", limits::kGrammarPositions);
  line("grammar-state-ways", limits::kGrammarStateWays);
  line("grammar-cache-bytes", limits::kGrammarCacheBytes);
  line("data-file-bytes", limits::kDataFileBytes);
  line("data-unpacked-bytes", limits::kDataUnpackedBytes);
  line("data-row-bytes", limits::kDataRowBytes);
  line("data-files", limits::kDataFiles);
  line("data-classes", limits::kDataClasses);
  line("data-columns", limits::kDataColumns);
  line("image-bytes", limits::kImageBytes);
  line("image-side", limits::kImageSide);
  line("prompt-bytes", limits::kPromptBytes);
  return out;
}

std::string installed_data_directory() {
  return LUMEN_DATA_DIRECTORY;
}

}  // namespace lumen::runtime
