// Checkpoints: directories that are either there and whole, or not there.
//
// DIR/step-500/ holds weights.safetensors, optimizer.safetensors, state.json and manifest.json. The
// manifest has the step and the size and SHA-256 of every other file. One is written as
// DIR/.writing-step-500, every file made durable, then renamed, then DIR made durable; only then
// does write_checkpoint return. A crash or power cut at any moment leaves the checkpoints that
// were there before, and perhaps hidden directories, which clean_checkpoints removes or renames.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::io {

struct Checkpoint {
  std::string path;  // where it was read; "" for one to be written
  int64_t step = 0;
  std::map<std::string, Array> weights, optimizer;
  Json state;  // whatever else a continuation needs
  Json about;  // goes into the manifest: recipe, metric, version
};

// A checkpoint on disk, as its manifest describes it.
struct CheckpointEntry {
  std::string path;
  int64_t step = 0;
  Json about;
};

// Called at named points of the protocol, for tests that kill the process there.
using CommitPoint = FunctionRef<void(std::string_view name)>;

// The points, in order: begin, weights, optimizer, state, manifest (each after the file is
// durable), directory (after its own fsync), renamed, committed; prune-hidden, pruned. Where one of
// the same step is replaced, "replaced" comes before renamed.
inline constexpr std::string_view kCommitPoints[] = {
    "begin",     "weights", "optimizer", "state",        "manifest",
    "directory", "renamed", "committed", "prune-hidden", "pruned"};

// Writes `directory`/step-N, making `directory` if needed; one of the same step is replaced.
// Returns its path. Throws Error: kCannotCreate if the directory cannot be written, kIo for a full
// disk and the like; what was written is removed then, the other checkpoints are untouched.
std::string write_checkpoint(
    const std::string& directory, const Checkpoint& checkpoint,
    CommitPoint at = [](std::string_view) {});

// The checkpoints in `directory` whose manifest can be read, newest step first; their files are not
// looked at. Empty if there is no such directory. `damaged` receives a sentence for each step-N
// that has no usable manifest.
std::vector<CheckpointEntry> list_checkpoints(const std::string& directory,
                                              std::vector<std::string>* damaged = nullptr);

// A step-N that can be no checkpoint any more.
struct BrokenCheckpoint {
  std::string path;
  int64_t step = 0;
  std::string problem;
};

// Those in `directory` whose manifest is missing, or does not say what it has to of step N. What
// may be good for somebody is none of them: a manifest of another format or another step (a copy
// made by hand), one that the system does not let us read, a directory with any other file in it.
std::vector<BrokenCheckpoint> broken_checkpoints(const std::string& directory);

// The manifest of the checkpoint at `path`. Throws Error: kMissing, kMalformed.
CheckpointEntry read_manifest(const std::string& path);

// Verifies sizes and hashes of all files of the checkpoint at `path` and reads it; the arrays are
// mapped read-only. Throws Error(kMalformed) naming the file that is damaged, kMissing, kIo.
Checkpoint read_checkpoint(const std::string& path);

// Verifies without reading further: "" or what is wrong.
std::string verify_checkpoint(const std::string& path);

// Removes the checkpoint at `path`: first hidden by a rename, so that a crash leaves no half one.
void remove_checkpoint(
    const std::string& path, CommitPoint at = [](std::string_view) {});

// Throws Error as write_checkpoint if `directory` is there and takes no checkpoints: a file, or one
// that cannot be written.
void require_writable_checkpoints(const std::string& directory);

// Removes what an interrupted write or removal left in `directory`, and gives a checkpoint its name
// back that was to be replaced by one that was not written. Only while no other process writes
// there.
void clean_checkpoints(const std::string& directory);

}  // namespace lumen::io
