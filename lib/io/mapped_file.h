// Files as memory: regular files opened safely and mapped read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lib/tensor/array.h"

namespace lumen::io {

// `path` as errors name it: without control and bidirectional-override characters.
std::string place_of(const std::string& path);

// Maps the whole regular file at `path` read-only; symbolic links are followed, nothing is read
// yet. The buffer is not writable and unmaps the file when its last user goes. Never blocks on a
// FIFO or device. If the file shrinks while mapped, touching the lost pages raises SIGBUS: the
// runtime turns that into exit code 74.
//
// Throws Error: kMissing if there is no such file, it is a directory, FIFO, device, socket or
// symbolic-link loop, or permission is lacking; kMalformed if it is empty; kResource if the system
// has no address space or file descriptor left; kIo for other read errors.
std::shared_ptr<const Buffer> map_file(const std::string& path);

// Gives the pages that lie wholly in `bytes` of a mapped file back to the system; touching them
// again reads the file again. Does nothing if `buffer` is no mapped file. Thread-safe.
void drop_pages(const Buffer& buffer, std::span<const std::byte> bytes);

// The content of the regular file at `path`, or of a pipe that it names by the number of its open
// descriptor (/dev/fd/N, as shells write for <(COMMAND), /dev/stdin): that one is read only once,
// and waited for. Throws like map_file (an empty file gives ""), and kMalformed if it is longer
// than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes);

// Whether `path` names an open descriptor by its number, which nothing can lie beside.
bool names_descriptor(const std::string& path);

bool is_directory(const std::string& path);
bool is_regular_file(const std::string& path);

// The names in a directory, hidden ones too, sorted. The first throws Error(kMissing) if it cannot
// be read; the second sets `error`, and gives what could be read.
std::vector<std::string> names_in(const std::string& directory);
std::vector<std::string> names_in(const std::string& directory, std::error_code& error);

// What a file is that is not what it should be, from its first bytes: one clause such as "this is a
// git-LFS pointer, not the file itself: run 'git lfs pull'", or "" if nothing is recognised. Knows
// LFS pointers, HTML and XML pages, zip archives (PyTorch checkpoints), pickles, GGUF and
// safetensors files.
std::string content_hint(std::span<const std::byte> head);
// Whether that is a failed download: a pointer or a page in place of the file.
bool is_failed_download(std::span<const std::byte> head);

// Array over `bytes` of the mapped `buffer` at `offset`, which must lie inside it: a view, except
// that data not aligned to its element type (odd offsets are legal in safetensors) is copied.
Array mapped_array(const std::shared_ptr<const Buffer>& buffer, uint64_t offset, DType dtype,
                   const Shape& shape);

}  // namespace lumen::io
