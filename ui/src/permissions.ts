/** What the caller's key may do. The server checks every request; the console hides what it refuses. */

export type Permission = "use" | "read" | "inspect" | "approve" | "export" | "verify" | "manage_keys" | "manage_routes";

export interface Account {
  tenant: string;
  key?: string;
  role?: string;
  permissions?: Permission[];
}

let granted: Permission[] | undefined;

export function setAccount(account: Account | null) {
  granted = account?.permissions;
}

/** Returns whether the caller has a permission. Until the server has answered, all are assumed. */
export const may = (permission: Permission) => granted?.includes(permission) ?? true;
