// SPDX-License-Identifier: BSD-2-Clause
/*
 * bpf/parse.h in user space: every frame of tests/packet/frames.tsv cut at every length from 0 (of
 * which BPF_PROG_TEST_RUN cannot take the first 13), laid against an unmapped page, so that a read
 * past the end is a crash with or without a sanitizer. Whatever it says must keep the invariants
 * that tests/fuzz/fuzz_parse.c checks; this runs the same function on the corpus.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <cmocka.h>
#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* clang's unroll */
#include "../fuzz/fuzz_parse.c"

#define TABLE "tests/packet/frames.tsv"
#define FRAME_MAX 2048

static uint8_t *guarded_end(void)
{
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
	return p + page;
}

static size_t frame_parse(const char *line, uint8_t *frame)
{
	const char *hex = strrchr(line, '\t');
	unsigned int octet;
	size_t n = 0;

	assert_non_null(hex);
	for (hex++; n < FRAME_MAX && sscanf(hex, "%2x", &octet) == 1; hex += 2)
		frame[n++] = octet;
	return n;
}

static void every_frame_cut_at_every_length(void **state)
{
	uint8_t frame[FRAME_MAX], *end = guarded_end();
	FILE *f = fopen(TABLE, "r");
	char line[4096];
	size_t frames = 0, runs = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		size_t n;

		if (*line == '#')
			continue;
		n = frame_parse(line, frame);
		for (size_t cut = 0; cut <= n; cut++, runs++) {
			memcpy(end - cut, frame, cut);
			LLVMFuzzerTestOneInput(end - cut, cut);
		}
		frames++;
	}
	fclose(f);
	print_message("%zu frames, %zu lengths\n", frames, runs);
	assert_true(frames > 100);
}

int main(void)
{
	const struct CMUnitTest t[] = { cmocka_unit_test(every_frame_cut_at_every_length) };

	return cmocka_run_group_tests_name("parse", t, NULL, NULL) ? 1 : 0;
}
