/* Counts a process's file calls, and stops or fails it at one of them.
 * gcc -shared -fPIC -o file_calls.so _file_calls.c -ldl; LD_PRELOAD=./file_calls.so python -m tests.bench.survive_runs
 * arm(at, mode): at the at-th call: 1 SIGKILL, 2 EIO, 3 ENOSPC, 4 half of a write, 0 only count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

static long left = -1, seen = 0;
static int mode = 0;

void arm(long at, int how) { left = at; mode = how; seen = 0; }
long calls(void) { return seen; }

static int struck(int writing) {
  if (left < 0) return 0;
  seen++;
  if (mode == 0 || --left != 0) return 0;
  left = -1;
  if (mode == 1) raise(SIGKILL);
  if (mode == 4) return writing ? 2 : 0;
  errno = mode == 2 ? EIO : ENOSPC;
  return 1;
}

static int is_file(int fd) {
  struct stat about;
  return left >= 0 && fd > 2 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

#define REAL(type, name) static type (*real)() = 0; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, write);
  if (is_file(fd)) { int s = struck(1); if (s == 1) return -1; if (s == 2) size /= 2; }
  return real(fd, data, size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  REAL(ssize_t, pwrite64);
  if (is_file(fd)) { int s = struck(1); if (s == 1) return -1; if (s == 2) size /= 2; }
  return real(fd, data, size, at);
}
#define ONE(name) int name(int fd) { REAL(int, name); return struck(0) == 1 ? -1 : real(fd); }
ONE(fsync)
ONE(fdatasync)
int ftruncate64(int fd, off_t size) { REAL(int, ftruncate64); return struck(0) == 1 ? -1 : real(fd, size); }
int unlink(const char *path) { REAL(int, unlink); return struck(0) == 1 ? -1 : real(path); }
int rename(const char *one, const char *two) { REAL(int, rename); return struck(0) == 1 ? -1 : real(one, two); }
int link(const char *one, const char *two) { REAL(int, link); return struck(0) == 1 ? -1 : real(one, two); }
int mkdir(const char *path, mode_t how) { REAL(int, mkdir); return struck(0) == 1 ? -1 : real(path, how); }
int posix_fallocate64(int fd, off_t at, off_t size) {
  REAL(int, posix_fallocate64);
  return struck(0) == 1 ? errno : real(fd, at, size);
}
int open64(const char *path, int flags, ...) {
  REAL(int, open64);
  va_list more;
  va_start(more, flags);
  mode_t how = va_arg(more, mode_t);
  va_end(more);
  return (flags & (O_CREAT | O_WRONLY | O_RDWR)) && struck(0) == 1 ? -1 : real(path, flags, how);
}
