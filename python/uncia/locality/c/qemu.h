/* What the tracer uses of QEMU's interface to plugins, version 1, whose header Debian does not package. */
#ifndef QEMU_H
#define QEMU_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* Its first field alone is read: the architecture of the program. */
typedef struct {
    const char *target_name;
} qemu_info_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

typedef void (*vcpu_callback)(qemu_plugin_id_t id, unsigned int vcpu);
typedef void (*block_callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*executed_callback)(unsigned int vcpu, void *data);
typedef void (*ended_callback)(qemu_plugin_id_t id, void *data);
typedef void (*syscall_callback)(qemu_plugin_id_t id, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2,
                                 uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, vcpu_callback callback);
void qemu_plugin_register_vcpu_exit_cb(qemu_plugin_id_t id, vcpu_callback callback);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, block_callback callback);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, executed_callback callback,
                                          enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id, syscall_callback callback);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, ended_callback callback, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);

#endif
