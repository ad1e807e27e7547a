#include "lib/io/mapped_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_errno(std::string_view doing, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      fail(ErrorKind::kMissing, "no such file");
    case EACCES:
    case EPERM:
      fail(ErrorKind::kMissing, "permission denied");
    case ELOOP:
      fail(ErrorKind::kMissing, "symbolic links that form a loop");
    case ENAMETOOLONG:
      fail(ErrorKind::kMissing, "the name is too long");
    case ENXIO:  // open of a socket or of a device without driver
      fail(ErrorKind::kMissing, "not a regular file");
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      fail(ErrorKind::kResource, doing, " failed: ", std::strerror(error));
    default:
      fail(ErrorKind::kIo, doing, " failed: ", std::strerror(error));
  }
}

void check_regular(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  std::string_view kind = "not a regular file";
  if (S_ISDIR(status.st_mode)) kind = "a directory";
  if (S_ISFIFO(status.st_mode)) kind = "a FIFO";
  if (S_ISSOCK(status.st_mode)) kind = "a socket";
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) kind = "a device";
  fail(ErrorKind::kMissing, kind, kind[0] == 'a' ? ", not a regular file" : "");
}

// Opens a regular file and tells its size. The check before open keeps devices untouched, the one
// after it holds for what was opened.
Descriptor open_regular(const std::string& path, uint64_t& bytes) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail_errno("looking it up", errno);
  check_regular(status);
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) fail_errno("opening", errno);
  if (::fstat(file.get(), &status) != 0) fail_errno("looking it up", errno);
  check_regular(status);
  bytes = static_cast<uint64_t>(status.st_size);
  return file;
}

// The number of an open descriptor that `path` names, else −1.
int descriptor_number(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int64_t number = -1;
    if (path.starts_with(folder) && parse_number(path.substr(folder.size()), number) &&
        number >= 0 && number <= std::numeric_limits<int>::max()) {
      return static_cast<int>(number);
    }
  }
  return -1;
}

// A pipe that the process has open and `path` names by its number: unlike a FIFO by another name it
// has a writer, or is at its end. Negative: no such.
Descriptor named_pipe(std::string_view path) {
  const int number = descriptor_number(path);
  struct stat status;
  if (number < 0 || ::fstat(number, &status) != 0 || !S_ISFIFO(status.st_mode)) {
    return Descriptor(-1);
  }
  return Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 3));
}

std::string read_pipe(const Descriptor& pipe, uint64_t max_bytes) {
  constexpr size_t kPiece = 1 << 16;
  std::string content;
  for (size_t filled = 0;;) {
    content.resize(filled + kPiece);
    const ssize_t got = ::read(pipe.get(), content.data() + filled, kPiece);
    if (got < 0 && errno != EINTR && errno != EAGAIN) fail_errno("reading", errno);
    if (got < 0 && errno == EAGAIN) {
      pollfd waiting = {pipe.get(), POLLIN, 0};
      ::poll(&waiting, 1, -1);
    }
    filled += static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (filled > max_bytes)
      fail(ErrorKind::kMalformed, "longer than the limit of ", max_bytes, " bytes");
    content.resize(filled);
    if (got == 0) return content;
  }
}

bool starts_with(std::span<const std::byte> head, std::string_view magic) {
  return head.size() >= magic.size() && std::memcmp(head.data(), magic.data(), magic.size()) == 0;
}

bool is_lfs_pointer(std::span<const std::byte> head) {
  return starts_with(head, "version https://git-lfs.github.com/spec/");
}

// As stores of files in the cloud answer.
bool is_xml(std::span<const std::byte> head) {
  return starts_with(head, "<?xml");
}

// True for text whose first mark-up is "<!doctype html" or "<html".
bool is_html(std::span<const std::byte> head) {
  std::string text;
  for (std::byte b : head.first(std::min<size_t>(head.size(), 256))) {
    const char c = static_cast<char>(b);
    text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) return false;
  return text.compare(start, 14, "<!doctype html") == 0 || text.compare(start, 5, "<html") == 0;
}

size_t alignment_of(DType dtype) {
  // Blocks of quantised types begin with, or contain, half-precision scales.
  return is_quantized(dtype) ? 2 : static_cast<size_t>(info(dtype).block_bytes);
}

}  // namespace

std::string place_of(const std::string& path) {
  return printable(path, 400);
}

std::shared_ptr<const Buffer> map_file(const std::string& path) {
  return with_context(place_of(path), [&] {
    uint64_t bytes = 0;
    const Descriptor file = open_regular(path, bytes);
    if (bytes == 0) {
      fail(ErrorKind::kMalformed, "the file is empty (an interrupted download?)");
    }
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED && errno == ENOMEM) {
      fail(ErrorKind::kResource, "the file's ", human_bytes(bytes),
           " do not fit into the address space that is left to the process (ulimit -v)");
    }
    if (data == MAP_FAILED) fail_errno("mapping", errno);
    auto buffer = std::make_shared<Buffer>();
    buffer->data = static_cast<std::byte*>(data);
    buffer->bytes = bytes;
    buffer->writable = false;
    buffer->mapped = true;
    buffer->owner = std::shared_ptr<void>(data, [bytes](void* p) { ::munmap(p, bytes); });
    return std::shared_ptr<const Buffer>(std::move(buffer));
  });
}

void drop_pages(const Buffer& buffer, std::span<const std::byte> bytes) {
  if (!buffer.mapped) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  return with_context(place_of(path), [&] {
    if (const Descriptor pipe = named_pipe(path); pipe.get() >= 0) {
      return read_pipe(pipe, max_bytes);
    }
    uint64_t bytes = 0;
    const Descriptor file = open_regular(path, bytes);
    if (bytes > max_bytes) {
      fail(ErrorKind::kMalformed, "the file has ", bytes, " bytes; the limit is ", max_bytes);
    }
    std::string content(bytes, '\0');
    size_t filled = 0;
    while (filled < content.size()) {
      const ssize_t got = ::read(file.get(), content.data() + filled, content.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("reading", errno);
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    content.resize(filled);
    return content;
  });
}

bool names_descriptor(const std::string& path) {
  return descriptor_number(path) >= 0;
}

bool is_directory(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names = names_in(directory, error);
  if (error) {
    fail(ErrorKind::kMissing, place_of(directory),
         ": the directory cannot be read: ", error.message());
  }
  return names;
}

std::vector<std::string> names_in(const std::string& directory, std::error_code& error) {
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(directory, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_regular_file(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_failed_download(std::span<const std::byte> head) {
  return is_lfs_pointer(head) || is_html(head) || is_xml(head);
}

std::string content_hint(std::span<const std::byte> head) {
  if (is_lfs_pointer(head)) {
    return "this is a git-LFS pointer, not the file itself: run 'git lfs pull' in the model's "
           "directory";
  }
  if (is_html(head)) {
    return "this is an HTML page, probably a failed download: fetch the file itself";
  }
  if (is_xml(head)) {
    return "this is XML, perhaps the message of a failed download: fetch the file itself";
  }
  if (starts_with(head, "PK\x03\x04")) {
    return "this is a zip archive, perhaps a PyTorch checkpoint";
  }
  // Protocol 2 to 5, then an opcode that pickles of dictionaries, lists and torch begin with.
  if (head.size() >= 3 && head[0] == std::byte{0x80} && head[1] >= std::byte{2} &&
      head[1] <= std::byte{5} &&
      std::string_view("}](cX\x8a\x95").find(static_cast<char>(head[2])) != std::string::npos) {
    return "this is a Python pickle, which Lumen never executes: convert it to safetensors";
  }
  if (starts_with(head, "GGUF")) return "this is a GGUF file";
  if (head.size() >= 9 && head[7] == std::byte{0} && static_cast<char>(head[8]) == '{') {
    return "this is a safetensors file: give the model's directory with its config.json";
  }
  return "";
}

Array mapped_array(const std::shared_ptr<const Buffer>& buffer, uint64_t offset, DType dtype,
                   const Shape& shape) {
  Array view = Array::view(buffer, offset, dtype, shape);
  if (reinterpret_cast<uintptr_t>(view.data()) % alignment_of(dtype) == 0) return view;
  Array copy = Array::zeros(dtype, shape);
  std::memcpy(copy.mutable_data(), view.data(), view.bytes());
  return copy;
}

}  // namespace lumen::io
