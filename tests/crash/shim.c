/* A disk between the process and the real one, for tests: it forgets what was not synced, and it can be full or broken.
 *
 * Loaded before the C library. Inside of one folder, chosen by crash_watch, every sync copies what is now durable into a
 * shadow folder: of a file its content, of a folder its names. crash_fail lets calls fail from the n-th on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char root[PATH_MAX], shadow[PATH_MAX];
static int calls, first_failure, failure, halves;

#define REAL(result, name, ...) \
    static result (*real_##name)(__VA_ARGS__); \
    if (!real_##name) real_##name = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

void crash_watch(const char *folder, const char *aside) {
    snprintf(root, sizeof root, "%s", folder);
    snprintf(shadow, sizeof shadow, "%s", aside);
}

/* From the n-th call from now on, calls fail with `error`; a first one that writes leaves `half` of its bytes. */
void crash_fail(int nth, int error, int half) { calls = 0; first_failure = nth; failure = error; halves = half; }

int crash_calls(void) { return calls; }

/* What tells one file from all others, also from one that later gets its number. */
int crash_key(int folder, const char *path, char *key, int size) {
    struct statx found;
    if (statx(folder, path, AT_SYMLINK_NOFOLLOW | (*path ? 0 : AT_EMPTY_PATH), STATX_INO | STATX_BTIME, &found)) return -1;
    if (!(found.stx_mask & STATX_BTIME)) return -2;
    snprintf(key, size, "%llu-%lld.%09u", (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
             found.stx_btime.tv_nsec);
    return 0;
}

static int watched_path(const char *path) {
    size_t length = strlen(root);
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int watched(int handle) {
    char link[64], path[PATH_MAX];
    if (!*root) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return watched_path(path);
}

static int fails(void) {
    calls++;
    if (!first_failure || calls < first_failure) return 0;
    errno = failure;
    return 1;
}

static size_t allowed(size_t size) {
    return halves && first_failure && calls == first_failure ? size / 2 : 0;
}

ssize_t write(int handle, const void *bytes, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (watched(handle) && fails()) {
        size_t part = allowed(size);
        return part ? real_write(handle, bytes, part) : -1;
    }
    return real_write(handle, bytes, size);
}

ssize_t pwrite64(int handle, const void *bytes, size_t size, off_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    if (watched(handle) && fails()) {
        size_t part = allowed(size);
        return part ? real_pwrite64(handle, bytes, part, at) : -1;
    }
    return real_pwrite64(handle, bytes, size, at);
}

ssize_t pwrite(int handle, const void *bytes, size_t size, off_t at) { return pwrite64(handle, bytes, size, at); }

/* Where it is written down that a file was cut since its last sync. */
static int cut(int handle, char *path, int size) {
    char key[128];
    if (!*shadow || crash_key(handle, "", key, sizeof key)) return -1;
    snprintf(path, size, "%s/%s.cut", shadow, key);
    return 0;
}

int ftruncate64(int handle, off_t size) {
    REAL(int, ftruncate64, int, off_t);
    char path[PATH_MAX + 256];
    struct stat before;
    if (watched(handle) && fails()) return -1;
    if (watched(handle) && !fstat(handle, &before) && size < before.st_size && !cut(handle, path, sizeof path)) {
        int made = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (made < 0) abort();
        close(made);
    }
    return real_ftruncate64(handle, size);
}

int ftruncate(int handle, off_t size) { return ftruncate64(handle, size); }

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (watched_path(to) && fails()) return -1;
    return real_rename(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (watched_path(path) && fails()) return -1;
    return real_mkdir(path, mode);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    if (watched_path(path) && failure == EIO && fails()) return -1; /* a full disk lets go of files */
    return real_unlink(path);
}

static void keep_file(int handle, FILE *kept) {
    char link[64], bytes[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    int copy = open(link, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    while (copy >= 0 && (got = read(copy, bytes, sizeof bytes)) > 0) fwrite(bytes, 1, got, kept);
    if (copy >= 0) close(copy);
}

static void keep_names(int handle, FILE *kept) {
    char link[64], key[128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    DIR *folder = opendir(link);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            !crash_key(dirfd(folder), entry->d_name, key, sizeof key))
            fprintf(kept, "%s %c %s\n", key, entry->d_type == DT_DIR ? 'd' : 'f', entry->d_name);
    if (folder) closedir(folder);
}

/* The real sync is left out: the power that this disk loses is not the machine's. */
static int synced(int handle) {
    char key[128], path[PATH_MAX + 256], aside[PATH_MAX + 256];
    struct stat found;
    if (fails()) return -1;
    if (!*shadow) return 0;
    if (fstat(handle, &found) || crash_key(handle, "", key, sizeof key)) abort();
    snprintf(aside, sizeof aside, "%s/writing", shadow);
    snprintf(path, sizeof path, "%s/%s", shadow, key);
    FILE *kept = fopen(aside, "w");
    if (!kept) abort();
    (S_ISDIR(found.st_mode) ? keep_names : keep_file)(handle, kept);
    if (fclose(kept)) abort();
    REAL(int, rename, const char *, const char *);
    if (real_rename(aside, path)) abort();
    REAL(int, unlink, const char *);
    if (!cut(handle, aside, sizeof aside)) real_unlink(aside);
    return 0;
}

int fsync(int handle) {
    REAL(int, fsync, int);
    return watched(handle) ? synced(handle) : real_fsync(handle);
}

int fdatasync(int handle) {
    REAL(int, fdatasync, int);
    return watched(handle) ? synced(handle) : real_fdatasync(handle);
}
