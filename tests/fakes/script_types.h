/* What the scripts of the fake drivers have in common; fakes/c_structures.py reads it. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define MAX_SEGMENTS 2048
#define MAX_RULES 64
#define MAX_PIDS 32
#define MAX_COUNTS 64
#define NAME_LENGTH 96

struct segment { int64_t from_ns; double power_w; };
struct rule { char function[NAME_LENGTH]; int64_t gpu; int64_t code; int64_t hang; };
struct count { char function[NAME_LENGTH]; uint64_t calls[MAX_GPUS + 1]; };
