// Limits on input from outside, in one place. `lumen-run --limits` prints them (version.cc); a file
// that exceeds one is refused with Error(kMalformed) that names the limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::limits {

// GGUF: of one file but for kShards.
inline constexpr uint64_t kGgufKeys = 65'536;
inline constexpr uint64_t kGgufTensors = 1'048'576;
inline constexpr uint64_t kGgufKeyBytes = 64 << 10;
inline constexpr uint64_t kGgufStringBytes = 64 << 20;
inline constexpr uint64_t kGgufArrayElements = 16 << 20;
inline constexpr uint64_t kGgufArrayDepth = 16;
inline constexpr uint64_t kGgufMetadataBytes = 256 << 20;
inline constexpr uint64_t kGgufAlignment = 65'536;
inline constexpr uint64_t kGgufTensorNameBytes = 64;
inline constexpr int kGgufTensorDims = 4;
inline constexpr uint64_t kShards = 10'000;

// Safetensors, and kTensorDims of npy files too.
inline constexpr uint64_t kSafetensorsHeaderBytes = 100'000'000;
inline constexpr uint64_t kTensorNameBytes = 1024;
inline constexpr int kTensorDims = 8;
inline constexpr uint64_t kNpyHeaderBytes = 10'000;

// Of a PyTorch checkpoint: entries of the zip archive; bytes of its pickle, values that this holds
// at a time, and how deep they nest.
inline constexpr uint64_t kZipEntries = 1'048'576;
inline constexpr uint64_t kPickleBytes = 16 << 20;
inline constexpr uint64_t kPickleValues = 4 << 20;
inline constexpr size_t kPickleDepth = 64;

inline constexpr uint64_t kJsonBytes = 256 << 20;
inline constexpr int kJsonDepth = 32;
// Together they bound how deep toml++ nests tables, which it frees by recursion: 1.1.1.… = 1.
inline constexpr uint64_t kTomlBytes = 32 << 10;
inline constexpr int kTomlPoints = 200;  // in one line

// Of a model: layers, heads of attention, positions, width of anything.
inline constexpr int64_t kLayers = 4'096;
inline constexpr int64_t kHeads = 4'096;
inline constexpr int64_t kExperts = 4'096;  // of one layer
inline constexpr int64_t kContext = 1 << 24;
inline constexpr int64_t kDim = 1 << 20;

// Of a tokenizer: tokens, bytes of one, merges of BPE, bytes of a file that is not JSON or GGUF,
// and of a regular expression.
inline constexpr uint64_t kVocab = 1 << 21;
inline constexpr uint64_t kPieceBytes = 4'096;
inline constexpr uint64_t kMerges = 1 << 22;
inline constexpr uint64_t kTokenizerBytes = 256 << 20;
inline constexpr uint64_t kPatternBytes = 16 << 10;

// Of chat templates: source, nesting, and one rendering's steps, memory and result.
inline constexpr uint64_t kTemplateBytes = 1 << 20;
inline constexpr int kTemplateDepth = 128;
inline constexpr uint64_t kTemplateSteps = 10'000'000;
inline constexpr uint64_t kTemplateHeapBytes = 64 << 20;
inline constexpr uint64_t kTemplateOutputBytes = 16 << 20;

// Of grammars: source, rules, nesting of groups, and byte positions with all repetitions written
// out; of a state while matching, the ways in which the text so far may have been derived; and the
// memory of states and token masks kept for reuse.
inline constexpr uint64_t kGrammarBytes = 4 << 20;
inline constexpr uint64_t kGrammarRules = 65'536;
inline constexpr uint32_t kGrammarDepth = 128;
inline constexpr uint64_t kGrammarPositions = 1 << 20;
inline constexpr uint64_t kGrammarStateWays = 1 << 16;
inline constexpr uint64_t kGrammarCacheBytes = 64 << 20;

// Of data to train on or to classify: a mapped file of tokens; any other file, unpacked; a row or
// line; files of a directory; a table's columns; an image's file, and its height or width.
inline constexpr uint64_t kDataFileBytes = uint64_t{64} << 30;
inline constexpr uint64_t kDataUnpackedBytes = uint64_t{2} << 30;
inline constexpr uint64_t kDataRowBytes = 64 << 20;
inline constexpr uint64_t kDataFiles = 10'000'000;
inline constexpr int64_t kDataClasses = 100'000;
inline constexpr int64_t kDataColumns = 100'000;
inline constexpr uint64_t kImageBytes = 256 << 20;
inline constexpr int64_t kImageSide = 16'384;

// Of any text to be tokenized: prompts, conversations, lines of standard input.
inline constexpr uint64_t kPromptBytes = 256 << 20;

}  // namespace lumen::limits
