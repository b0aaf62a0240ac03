/* LD_PRELOAD library: one system call below a folder fails, and changes of files below it are logged.

   shim_set(root, kind, number, error, sticky) arms it in this process: the call with this number (from 1) of this kind fails with
   `error`, with `sticky` all later ones too. shim_count(kind) returns how many calls there were. shim_log(file) logs writes,
   fsyncs, truncations, creations, renames and deletions, for a simulated loss of power. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME, UNLINK, MKDIR, STAT, TRUNCATE, MMAP, LIST, LINK, KINDS };
#define FDS 4096

static char root[PATH_MAX];
static size_t root_length;
static int kind_armed = -1, error_armed, sticky, fired, log_fd = -1;
static long number_armed, counts[KINDS];
static char paths[FDS][512];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })

void shim_set(const char *folder, int kind, long number, int error, int all) {
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    kind_armed = kind, number_armed = number, error_armed = error, sticky = all, fired = 0;
    memset(counts, 0, sizeof counts);
}
void shim_log(const char *file) { log_fd = file ? REAL(open)(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1; }
long shim_count(int kind) { return counts[kind]; }
int shim_fired(void) { return fired; }

static int tracked(int fd) { return fd >= 0 && fd < FDS && paths[fd][0]; }

/* Writes the absolute path of a file below the root; returns 0 for any other file. */
static int inside(int folder, const char *name, char *path) {
    if (!root_length || !name) return 0;
    if (name[0] == '/') snprintf(path, PATH_MAX, "%s", name);
    else if (folder != AT_FDCWD && tracked(folder)) snprintf(path, PATH_MAX, "%s/%s", paths[folder], name);
    else return 0;
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* Counts a call; returns 1, with errno set, if it must fail. */
static int fails(int kind) {
    int fail;
    pthread_mutex_lock(&lock);
    long number = ++counts[kind];
    fail = kind == kind_armed && (number == number_armed || (sticky && number > number_armed));
    fired |= fail;
    pthread_mutex_unlock(&lock);
    if (fail) errno = error_armed;
    return fail;
}

static void record(char what, uint64_t inode, int64_t offset, const char *path, const void *data, size_t length) {
    struct __attribute__((packed)) { char what; uint64_t inode; int64_t offset; uint32_t path, data; } head =
        {what, inode, offset, path ? strlen(path) : 0, length};
    if (log_fd < 0) return;
    pthread_mutex_lock(&lock);
    REAL(write)(log_fd, &head, sizeof head);
    if (path) REAL(write)(log_fd, path, head.path);
    if (length) REAL(write)(log_fd, data, length);
    pthread_mutex_unlock(&lock);
}
static uint64_t inode_of(int fd) { struct stat status; return REAL(fstat)(fd, &status) ? 0 : status.st_ino; }

static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < FDS) {
        snprintf(paths[fd], sizeof paths[fd], "%s", path);
        if (log_fd >= 0 && flags & (O_CREAT | O_WRONLY | O_RDWR)) {
            record('o', inode_of(fd), 0, path, 0, 0);
            if (flags & O_TRUNC) record('t', inode_of(fd), 0, 0, 0, 0);
        }
    }
    return fd;
}
#define OPENED(name, signature, folder, ...)                                   \
    int name signature {                                                       \
        char path[PATH_MAX];                                                   \
        mode_t mode = 0;                                                       \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); } \
        if (!inside(folder, file, path)) return REAL(name)(__VA_ARGS__, mode); \
        if (fails(OPEN)) return -1;                                            \
        return opened(REAL(name)(__VA_ARGS__, mode), path, flags);             \
    }
OPENED(open, (const char *file, int flags, ...), AT_FDCWD, file, flags)
OPENED(open64, (const char *file, int flags, ...), AT_FDCWD, file, flags)
OPENED(openat, (int at, const char *file, int flags, ...), at, at, file, flags)
OPENED(openat64, (int at, const char *file, int flags, ...), at, at, file, flags)
int close(int fd) { if (fd >= 0 && fd < FDS) paths[fd][0] = 0; return REAL(close)(fd); }

#define BY_FD(kind, type, name, signature, ...)                        \
    type name signature {                                              \
        if (tracked(fd) && fails(kind)) return (type)-1;               \
        return REAL(name)(__VA_ARGS__);                                \
    }
BY_FD(READ, ssize_t, read, (int fd, void *data, size_t size), fd, data, size)
BY_FD(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
BY_FD(READ, ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
BY_FD(STAT, int, fstat, (int fd, struct stat *status), fd, status)
BY_FD(STAT, int, fstat64, (int fd, struct stat64 *status), fd, status)
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (tracked(fd) && fails(MMAP)) return MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    if (tracked(fd) && fails(MMAP)) return MAP_FAILED;
    return REAL(mmap64)(at, size, protection, flags, fd, offset);
}

static ssize_t written(int fd, const void *data, ssize_t size, int64_t offset) {
    if (size > 0 && log_fd >= 0) record('w', inode_of(fd), offset, 0, data, size);
    return size;
}
static int64_t position(int fd) {
    struct stat status;
    if (REAL(fcntl)(fd, F_GETFL) & O_APPEND) return REAL(fstat)(fd, &status) ? 0 : status.st_size;
    return lseek(fd, 0, SEEK_CUR);
}
ssize_t write(int fd, const void *data, size_t size) {
    if (!tracked(fd)) return REAL(write)(fd, data, size);
    if (fails(WRITE)) return -1;
    int64_t offset = log_fd >= 0 ? position(fd) : 0;
    return written(fd, data, REAL(write)(fd, data, size), offset);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    if (!tracked(fd)) return REAL(pwrite)(fd, data, size, at);
    return fails(WRITE) ? -1 : written(fd, data, REAL(pwrite)(fd, data, size, at), at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    if (!tracked(fd)) return REAL(pwrite64)(fd, data, size, at);
    return fails(WRITE) ? -1 : written(fd, data, REAL(pwrite64)(fd, data, size, at), at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t total = 0;
    if (!tracked(fd)) return REAL(writev)(fd, parts, count);
    for (int part = 0; part < count; part++) {
        ssize_t size = write(fd, parts[part].iov_base, parts[part].iov_len);
        if (size < 0) return total ? total : -1;
        total += size;
    }
    return total;
}
static int synced(int fd) { if (log_fd >= 0) record('s', inode_of(fd), 0, paths[fd], 0, 0); return 0; }
int fsync(int fd) { return !tracked(fd) ? REAL(fsync)(fd) : fails(FSYNC) ? -1 : synced(fd); }
int fdatasync(int fd) { return !tracked(fd) ? REAL(fdatasync)(fd) : fails(FSYNC) ? -1 : synced(fd); }
int ftruncate(int fd, off_t size) {
    if (!tracked(fd)) return REAL(ftruncate)(fd, size);
    if (fails(TRUNCATE)) return -1;
    record('t', inode_of(fd), size, 0, 0, 0);
    return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int posix_fallocate(int fd, off_t at, off_t size) {
    return tracked(fd) && fails(TRUNCATE) ? error_armed : REAL(posix_fallocate)(fd, at, size);
}

#define BY_PATH(kind, name, signature, folder, file, what, ...)                \
    int name signature {                                                       \
        char path[PATH_MAX];                                                   \
        if (!inside(folder, file, path)) return REAL(name)(__VA_ARGS__);       \
        if (fails(kind)) return -1;                                            \
        int result = REAL(name)(__VA_ARGS__);                                  \
        if (!result && what) record(what, 0, 0, path, 0, 0);                   \
        return result;                                                         \
    }
BY_PATH(UNLINK, unlink, (const char *file), AT_FDCWD, file, 'u', file)
BY_PATH(UNLINK, rmdir, (const char *file), AT_FDCWD, file, 'u', file)
BY_PATH(UNLINK, unlinkat, (int at, const char *file, int flags), at, file, 'u', at, file, flags)
BY_PATH(MKDIR, mkdir, (const char *file, mode_t mode), AT_FDCWD, file, 'd', file, mode)
BY_PATH(MKDIR, mkdirat, (int at, const char *file, mode_t mode), at, file, 'd', at, file, mode)
BY_PATH(STAT, stat, (const char *file, struct stat *status), AT_FDCWD, file, 0, file, status)
BY_PATH(STAT, stat64, (const char *file, struct stat64 *status), AT_FDCWD, file, 0, file, status)
BY_PATH(STAT, lstat, (const char *file, struct stat *status), AT_FDCWD, file, 0, file, status)
BY_PATH(STAT, lstat64, (const char *file, struct stat64 *status), AT_FDCWD, file, 0, file, status)
BY_PATH(STAT, fstatat, (int at, const char *file, struct stat *status, int flags), at, file, 0, at, file, status, flags)
BY_PATH(STAT, fstatat64, (int at, const char *file, struct stat64 *status, int flags), at, file, 0, at, file, status, flags)
BY_PATH(STAT, statx, (int at, const char *file, int flags, unsigned mask, struct statx *status), at, file, 0, at, file, flags, mask, status)

typedef struct __dirstream DIR;
DIR *opendir(const char *file) {
    char path[PATH_MAX];
    return inside(AT_FDCWD, file, path) && fails(LIST) ? 0 : REAL(opendir)(file);
}
DIR *fdopendir(int fd) { return tracked(fd) && fails(LIST) ? 0 : REAL(fdopendir)(fd); }

static int moved(int result, char what, const char *from, const char *to) {
    if (!result) record(what, 0, 0, from, to, strlen(to));
    return result;
}
#define TWO_PATHS(kind, name, signature, folder, folder_to, what, ...)         \
    int name signature {                                                       \
        char path[PATH_MAX], target[PATH_MAX];                                 \
        if (!inside(folder, from, path) || !inside(folder_to, to, target)) return REAL(name)(__VA_ARGS__); \
        return fails(kind) ? -1 : moved(REAL(name)(__VA_ARGS__), what, path, target); \
    }
TWO_PATHS(RENAME, rename, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, 'r', from, to)
TWO_PATHS(RENAME, renameat, (int at, const char *from, int at_to, const char *to), at, at_to, 'r', at, from, at_to, to)
TWO_PATHS(RENAME, renameat2, (int at, const char *from, int at_to, const char *to, unsigned flags), at, at_to, 'r', at, from, at_to, to, flags)
TWO_PATHS(LINK, link, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, 'l', from, to)
TWO_PATHS(LINK, linkat, (int at, const char *from, int at_to, const char *to, int flags), at, at_to, 'l', at, from, at_to, to, flags)
