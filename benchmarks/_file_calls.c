/* Counts a process's calls on files below one folder, and stops or fails it at one of them, SQLite's included.
 * cc -shared -fPIC -o file_calls.so _file_calls.c -ldl; LD_PRELOAD=./file_calls.so python ...
 * arm(folder, at, how, kinds, lasting): from the at-th call of these kinds (1 write, 2 sync, 4 name, 8 read) on:
 *   how < 0: raise the signal -how; 0: only count; 1000: half of a write; else: fail with this errno.
 *   lasting: every later call of these kinds fails too (a disk that stays full or broken). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, NAME = 4, READ = 8 };
static long left = 0, seen = 0;
static int armed = 0, how = 0, kinds = 0, lasting = 0;
static char folder[4096];
static char inside[65536];

void arm(const char *where, long at, int fault, int which, int stays) {
  strncpy(folder, where, sizeof folder - 1);
  left = at; how = fault; kinds = which; lasting = stays; seen = 0; armed = 1;
}
void disarm(void) { armed = 0; }
long calls(void) { return seen; }

/* 0: go on; 1: fail with errno; 2: half of a write. */
static int struck(int kind) {
  if (!armed || !(kind & kinds)) return 0;
  seen++;
  if (how == 0 || left < 0) return 0;
  if (left > 0 && --left > 0) return 0;
  if (!lasting || how < 0) left = -1;
  if (how < 0) { raise(-how); return 0; }
  if (how == 1000) return kind == WRITE ? 2 : 0;
  errno = how;
  return 1;
}
static int ours(int at, const char *path) {
  if (!armed) return 0;
  if (path[0] == '/') return strncmp(path, folder, strlen(folder)) == 0;
  return at >= 0 && at < (int)sizeof inside && inside[at];
}
static int mine(int fd) { return armed && fd > 2 && fd < (int)sizeof inside && inside[fd]; }
static int opened(int fd, int yes) {
  if (fd >= 0 && fd < (int)sizeof inside) inside[fd] = (char)yes;
  return fd;
}

#define REAL(type, name) static type (*real)() = 0; if (!real) real = dlsym(RTLD_NEXT, #name)
#define WRITES(name, ...) \
  if (mine(fd)) { int s = struck(WRITE); if (s == 1) return -1; if (s == 2) size = (size + 1) / 2; }

ssize_t write(int fd, const void *data, size_t size) { REAL(ssize_t, write); WRITES() return real(fd, data, size); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  REAL(ssize_t, pwrite64); WRITES() return real(fd, data, size, at);
}
ssize_t read(int fd, void *data, size_t size) {
  REAL(ssize_t, read); return mine(fd) && struck(READ) == 1 ? -1 : real(fd, data, size);
}
ssize_t pread64(int fd, void *data, size_t size, off_t at) {
  REAL(ssize_t, pread64); return mine(fd) && struck(READ) == 1 ? -1 : real(fd, data, size, at);
}
int fsync(int fd) { REAL(int, fsync); return mine(fd) && struck(SYNC) == 1 ? -1 : real(fd); }
int fdatasync(int fd) { REAL(int, fdatasync); return mine(fd) && struck(SYNC) == 1 ? -1 : real(fd); }
int ftruncate64(int fd, off_t size) { REAL(int, ftruncate64); return mine(fd) && struck(WRITE) == 1 ? -1 : real(fd, size); }
int posix_fallocate64(int fd, off_t at, off_t size) {
  REAL(int, posix_fallocate64); return mine(fd) && struck(WRITE) == 1 ? errno : real(fd, at, size);
}
int close(int fd) { REAL(int, close); opened(fd, 0); return real(fd); }
int unlink(const char *path) { REAL(int, unlink); return ours(-1, path) && struck(NAME) == 1 ? -1 : real(path); }
int unlinkat(int at, const char *path, int flags) {
  REAL(int, unlinkat); return ours(at, path) && struck(NAME) == 1 ? -1 : real(at, path, flags);
}
int rmdir(const char *path) { REAL(int, rmdir); return ours(-1, path) && struck(NAME) == 1 ? -1 : real(path); }
int rename(const char *one, const char *two) { REAL(int, rename); return ours(-1, one) && struck(NAME) == 1 ? -1 : real(one, two); }
int link(const char *one, const char *two) { REAL(int, link); return ours(-1, one) && struck(NAME) == 1 ? -1 : real(one, two); }
int linkat(int a, const char *one, int b, const char *two, int flags) {
  REAL(int, linkat); return ours(a, one) && struck(NAME) == 1 ? -1 : real(a, one, b, two, flags);
}
int mkdir(const char *path, mode_t mode) { REAL(int, mkdir); return ours(-1, path) && struck(NAME) == 1 ? -1 : real(path, mode); }

#define OPENS(at) \
  va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
  int yes = ours(at, path); \
  int kind = flags & (O_CREAT | O_TRUNC) ? NAME : READ;
int open64(const char *path, int flags, ...) {
  REAL(int, open64); OPENS(-1)
  return yes && struck(kind) == 1 ? -1 : opened(real(path, flags, mode), yes);
}
int openat64(int at, const char *path, int flags, ...) {
  REAL(int, openat64); OPENS(at)
  return yes && struck(kind) == 1 ? -1 : opened(real(at, path, flags, mode), yes);
}
